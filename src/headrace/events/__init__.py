"""Event stores: append with versions, states, snapshots, schemas, projections, commands."""
