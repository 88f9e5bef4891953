-- Sources: the shop as it was when the hours begin, all of it read into one epoch.

CREATE SOURCE suppliers INTO bronze_suppliers
FROM DELTA '${data}/snapshot/suppliers' WITH (mode = 'snapshot');

CREATE SOURCE products INTO bronze_products
FROM DELTA '${data}/snapshot/products' WITH (mode = 'snapshot');

CREATE SOURCE customers INTO bronze_customers
FROM DELTA '${data}/snapshot/customers' WITH (mode = 'snapshot');

CREATE SOURCE orders INTO bronze_orders
FROM DELTA '${data}/snapshot/orders' WITH (mode = 'snapshot');

CREATE SOURCE order_items INTO bronze_order_items
FROM DELTA '${data}/snapshot/order_items' WITH (mode = 'snapshot');

CREATE SOURCE inventory_events INTO bronze_inventory_events
FROM DELTA '${data}/snapshot/inventory_events' WITH (mode = 'snapshot');

CREATE SOURCE clickstream_events INTO bronze_clickstream_events
FROM DELTA '${data}/snapshot/clickstream_events' WITH (mode = 'snapshot');
