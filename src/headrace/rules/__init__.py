"""How each operator follows change: one module per operator, its algebra on top."""
