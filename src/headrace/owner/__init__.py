"""Who may write to a home, and what others have it do for them."""
