"""Many records of Debezium at once, as columns: what is surely understood is never a Python object of its own.

A record is accepted if its whole text is of one regular expression (`pattern`), which is made from the columns of the
table, the options of the format and a few records of the topic. Of such a record Arrow's reader of JSON makes columns,
and `forms` makes of these what the reader of single records would have made. Every other record is read alone, as ever.
"""
