-- Silver: cleaned and joined, still one row per thing.

CREATE MATERIALIZED VIEW silver_customers AS
SELECT customer_id, email, signup_date, customer_tier, geo_country, geo_region, updated_at
FROM bronze_customers
WHERE customer_id IS NOT NULL
  AND customer_tier IN ('standard', 'silver', 'gold', 'platinum');

CREATE MATERIALIZED VIEW silver_products AS
SELECT product_id, product_name, category, brand, list_price
FROM bronze_products
WHERE product_id IS NOT NULL;

CREATE MATERIALIZED VIEW silver_enriched_clickstream AS
SELECT event_id, user_id, session_id, event_type, page_url, product_id, device_type, geo_country, geo_region,
       event_timestamp
FROM bronze_clickstream_events
WHERE event_type IS NOT NULL
  AND user_id IS NOT NULL
  AND event_type IN ('page_view', 'product_view', 'add_to_cart', 'begin_checkout', 'purchase');

CREATE MATERIALIZED VIEW silver_orders_enriched AS
WITH items AS (
    SELECT order_id,
           COUNT(*) AS item_count,
           SUM(quantity) AS total_quantity,
           SUM(quantity * unit_price) AS gross_item_revenue,
           AVG(discount_pct) AS avg_discount_pct
    FROM bronze_order_items
    WHERE quantity > 0 AND unit_price >= 0
    GROUP BY order_id
)
SELECT o.order_id, o.user_id, o.order_status, o.order_total, o.discount_amount, o.shipping_cost, o.payment_method,
       o.coupon_code, o.created_at, o.updated_at,
       c.customer_tier, c.geo_country AS customer_country, c.geo_region AS customer_region, c.signup_date,
       i.item_count, i.total_quantity, i.gross_item_revenue, i.avg_discount_pct
FROM bronze_orders o
JOIN silver_customers c ON o.user_id = c.customer_id
JOIN items i ON o.order_id = i.order_id
WHERE o.order_id IS NOT NULL
  AND o.user_id IS NOT NULL
  AND o.order_total >= 0
  AND o.order_status IN ('pending', 'confirmed', 'shipped', 'delivered', 'cancelled', 'returned');

CREATE MATERIALIZED VIEW silver_order_items_enriched AS
SELECT oi.order_item_id, oi.order_id, oi.product_id, oi.quantity, oi.unit_price, oi.discount_pct,
       oi.quantity * oi.unit_price AS line_gross_revenue,
       oi.quantity * oi.unit_price * (1.0 - COALESCE(oi.discount_pct, 0) / 100.0) AS line_net_revenue,
       oi.quantity * (oi.unit_price - p.cost_price) AS line_gross_margin,
       p.product_name, p.category, p.brand, p.cost_price, p.list_price,
       s.supplier_id, s.supplier_name, s.country AS supplier_country, s.lead_time_days,
       o.created_at AS order_created_at, o.order_status, o.user_id, c.customer_tier
FROM bronze_order_items oi
JOIN bronze_products p ON oi.product_id = p.product_id
JOIN bronze_suppliers s ON p.supplier_id = s.supplier_id
JOIN bronze_orders o ON oi.order_id = o.order_id
JOIN silver_customers c ON o.user_id = c.customer_id
WHERE oi.quantity > 0
  AND oi.unit_price >= 0
  AND p.is_active = TRUE
  AND o.order_status IN ('pending', 'confirmed', 'shipped', 'delivered', 'cancelled', 'returned');

CREATE MATERIALIZED VIEW silver_confirmed_order_items AS
SELECT *
FROM silver_order_items_enriched
WHERE order_status NOT IN ('cancelled', 'returned');

CREATE MATERIALIZED VIEW silver_inventory_current AS
SELECT ie.product_id, ie.warehouse_id, p.product_name, p.category, p.brand, s.supplier_id, s.supplier_name,
       s.lead_time_days,
       SUM(ie.quantity_change) AS current_stock,
       SUM(CASE WHEN ie.event_type = 'restock' THEN ie.quantity_change ELSE 0 END) AS total_restocked,
       SUM(CASE WHEN ie.event_type = 'sale_reserve' THEN ABS(ie.quantity_change) ELSE 0 END)
           - SUM(CASE WHEN ie.event_type = 'cancellation_restock' THEN ie.quantity_change ELSE 0 END) AS total_sold,
       SUM(CASE WHEN ie.event_type = 'return_restock' THEN ie.quantity_change ELSE 0 END) AS total_returned
FROM bronze_inventory_events ie
JOIN bronze_products p ON ie.product_id = p.product_id
JOIN bronze_suppliers s ON p.supplier_id = s.supplier_id
WHERE ie.quantity_change IS NOT NULL
  AND ie.product_id IS NOT NULL
GROUP BY ie.product_id, ie.warehouse_id, p.product_name, p.category, p.brand, s.supplier_id, s.supplier_name,
         s.lead_time_days;

CREATE MATERIALIZED VIEW silver_inventory_by_supplier AS
SELECT supplier_id, supplier_name,
       SUM(current_stock) AS total_current_stock,
       SUM(total_sold) AS total_sold,
       SUM(total_restocked) AS total_restocked,
       SUM(total_returned) AS total_returned
FROM silver_inventory_current
GROUP BY supplier_id, supplier_name;
