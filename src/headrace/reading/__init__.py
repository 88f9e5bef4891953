"""What a home tells of its relations: queries, earlier epochs, changes, explanations, and the judge."""
