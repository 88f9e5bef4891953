"""Who may do what with a home: keys, roles per relation, views that stand in for relations, the audit trail."""
