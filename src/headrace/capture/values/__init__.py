"""How values are written by those who capture changes, and how each becomes a value of a column.

The rules of types are here and nowhere else. An `Encoding` says how a value is written: a schema that comes with a
record names it (`formats/connect.py`, `formats/avro_schema.py`), or, without one, the type of the table's column and
the options do (`assumed`). `reader` is the one function from an encoding and a column's type to what reads the value.
"""
