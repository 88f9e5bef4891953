-- Gold: what people look at.

CREATE MATERIALIZED VIEW gold_supplier_performance AS
WITH sales AS (
    SELECT supplier_id, supplier_name, supplier_country, lead_time_days,
           SUM(quantity) AS total_units_sold,
           SUM(line_net_revenue) AS total_net_revenue,
           SUM(line_gross_margin) AS total_gross_margin,
           SUM(line_gross_margin) / NULLIF(SUM(line_net_revenue), 0) AS avg_margin_pct,
           AVG(discount_pct) AS avg_discount_applied,
           CAST(SUM(CASE WHEN order_status = 'delivered' THEN 1 ELSE 0 END) AS DOUBLE)
               / NULLIF(CAST(COUNT(*) AS DOUBLE), 0) AS reliability_score
    FROM silver_confirmed_order_items
    GROUP BY supplier_id, supplier_name, supplier_country, lead_time_days
),
products AS (
    SELECT supplier_id, COUNT(*) AS products_sold
    FROM (SELECT DISTINCT supplier_id, product_id FROM silver_confirmed_order_items)
    GROUP BY supplier_id
),
orders AS (
    SELECT supplier_id, COUNT(*) AS orders_fulfilled
    FROM (SELECT DISTINCT supplier_id, order_id FROM silver_confirmed_order_items)
    GROUP BY supplier_id
)
SELECT x.supplier_id, x.supplier_name, x.supplier_country, x.lead_time_days, p.products_sold, o.orders_fulfilled,
       x.total_units_sold, x.total_net_revenue, x.total_gross_margin, x.avg_margin_pct, x.avg_discount_applied,
       x.reliability_score,
       inv.total_current_stock,
       inv.total_sold AS inventory_units_sold,
       inv.total_restocked AS inventory_units_restocked,
       inv.total_returned AS inventory_units_returned
FROM sales x
JOIN silver_inventory_by_supplier inv ON x.supplier_id = inv.supplier_id
JOIN products p ON x.supplier_id = p.supplier_id
JOIN orders o ON x.supplier_id = o.supplier_id;

CREATE MATERIALIZED VIEW gold_inventory_risk AS
WITH stock AS (
    SELECT product_id, product_name, category, brand, supplier_name, lead_time_days,
           SUM(current_stock) AS total_stock_all_warehouses
    FROM silver_inventory_current
    GROUP BY product_id, product_name, category, brand, supplier_name, lead_time_days
),
sales AS (
    SELECT product_id,
           SUM(quantity) AS units_sold,
           SUM(quantity) / NULLIF(COUNT(DISTINCT date_trunc('DAY', order_created_at)), 0) AS avg_daily_units,
           SUM(line_net_revenue) AS net_revenue,
           SUM(line_gross_margin) AS gross_margin
    FROM silver_confirmed_order_items
    GROUP BY product_id
)
SELECT i.product_id, i.product_name, i.category, i.brand, i.supplier_name, i.lead_time_days,
       i.total_stock_all_warehouses, s.units_sold, s.avg_daily_units,
       CASE WHEN s.avg_daily_units > 0 THEN i.total_stock_all_warehouses / s.avg_daily_units END
           AS days_of_stock_remaining,
       CASE WHEN s.avg_daily_units > 0
                 AND i.total_stock_all_warehouses / s.avg_daily_units < i.lead_time_days * 1.5 THEN 'CRITICAL'
            WHEN s.avg_daily_units > 0
                 AND i.total_stock_all_warehouses / s.avg_daily_units < i.lead_time_days * 3.0 THEN 'WARNING'
            ELSE 'OK' END AS stock_risk_level,
       s.net_revenue, s.gross_margin
FROM stock i
JOIN sales s ON i.product_id = s.product_id;

CREATE MATERIALIZED VIEW gold_realtime_inventory_alerts AS
SELECT *
FROM gold_inventory_risk
WHERE stock_risk_level = 'CRITICAL';

CREATE MATERIALIZED VIEW gold_order_status_summary AS
SELECT order_status,
       COUNT(DISTINCT order_id) AS order_count,
       COALESCE(SUM(order_total), 0) AS total_revenue,
       AVG(order_total) AS avg_order_value,
       COUNT(DISTINCT user_id) AS unique_customers
FROM silver_orders_enriched
GROUP BY order_status;

CREATE MATERIALIZED VIEW gold_weekly_revenue_trend AS
WITH weekly AS (
    SELECT date_trunc('week', order_created_at) AS week_start, category,
           SUM(line_net_revenue) AS weekly_net_revenue,
           SUM(line_gross_margin) AS weekly_gross_margin,
           COUNT(DISTINCT order_id) AS order_count,
           SUM(quantity) AS units_sold
    FROM silver_confirmed_order_items
    GROUP BY date_trunc('week', order_created_at), category
)
SELECT week_start, category, weekly_net_revenue, weekly_gross_margin, order_count, units_sold,
       weekly_net_revenue - LAG(weekly_net_revenue, 1) OVER by_week AS revenue_wow_change,
       (weekly_net_revenue - LAG(weekly_net_revenue, 1) OVER by_week)
           / NULLIF(LAG(weekly_net_revenue, 1) OVER by_week, 0) AS revenue_wow_pct_change,
       AVG(weekly_net_revenue) OVER four_weeks AS revenue_4wk_moving_avg,
       AVG(weekly_gross_margin) OVER four_weeks AS margin_4wk_moving_avg,
       SUM(weekly_net_revenue) OVER (
           PARTITION BY category, EXTRACT(YEAR FROM week_start) ORDER BY week_start
           RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS cumulative_ytd_revenue
FROM weekly
WINDOW by_week AS (PARTITION BY category ORDER BY week_start),
       four_weeks AS (PARTITION BY category ORDER BY week_start
                      RANGE BETWEEN INTERVAL 3 WEEKS PRECEDING AND CURRENT ROW);

CREATE MATERIALIZED VIEW gold_cancellation_impact AS
WITH weekly AS (
    SELECT category, date_trunc('week', order_created_at) AS week_start,
           COUNT(DISTINCT CASE WHEN order_status = 'cancelled' THEN order_id END) AS weekly_cancelled_orders,
           COUNT(DISTINCT order_id) AS weekly_total_orders,
           SUM(CASE WHEN order_status = 'cancelled' THEN line_net_revenue ELSE 0 END) AS weekly_cancelled_revenue,
           SUM(line_net_revenue) AS weekly_total_revenue
    FROM silver_order_items_enriched
    GROUP BY category, date_trunc('week', order_created_at)
)
SELECT category, week_start, weekly_cancelled_orders, weekly_total_orders, weekly_cancelled_revenue,
       weekly_total_revenue,
       CAST(SUM(weekly_cancelled_orders) OVER so_far AS DOUBLE)
           / NULLIF(CAST(SUM(weekly_total_orders) OVER so_far AS DOUBLE), 0) AS cumulative_cancellation_rate,
       SUM(weekly_cancelled_revenue) OVER so_far AS cumulative_cancelled_revenue,
       CAST(SUM(weekly_cancelled_orders) OVER four_weeks AS DOUBLE)
           / NULLIF(CAST(SUM(weekly_total_orders) OVER four_weeks AS DOUBLE), 0) AS cancellation_rate_4wk
FROM weekly
WINDOW so_far AS (PARTITION BY category ORDER BY week_start
                  RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
       four_weeks AS (PARTITION BY category ORDER BY week_start
                      RANGE BETWEEN INTERVAL 3 WEEKS PRECEDING AND CURRENT ROW);

CREATE MATERIALIZED VIEW gold_product_demand_surge AS
WITH demand AS (
    SELECT product_id,
           SUM(CASE WHEN event_type = 'product_view' THEN 1 ELSE 0 END) AS recent_views,
           SUM(CASE WHEN event_type = 'add_to_cart' THEN 1 ELSE 0 END) AS recent_add_to_carts,
           SUM(CASE WHEN event_type = 'begin_checkout' THEN 1 ELSE 0 END) AS recent_checkouts
    FROM silver_enriched_clickstream
    WHERE product_id IS NOT NULL
      AND event_timestamp > (SELECT MAX(event_timestamp) FROM silver_enriched_clickstream) - INTERVAL 1 DAY
    GROUP BY product_id
),
stock AS (
    SELECT product_id, SUM(current_stock) AS total_stock_all_warehouses, MAX(lead_time_days) AS lead_time_days
    FROM silver_inventory_current
    GROUP BY product_id
)
SELECT d.product_id, p.product_name, p.category AS product_category, p.brand AS product_brand,
       d.recent_views, d.recent_add_to_carts, d.recent_checkouts,
       COALESCE(k.total_stock_all_warehouses, 0) AS total_stock_all_warehouses,
       k.lead_time_days,
       CAST(GREATEST(COALESCE(k.total_stock_all_warehouses, 0), 0) AS DOUBLE)
           / NULLIF(CAST(d.recent_add_to_carts AS DOUBLE), 0) AS days_of_stock_cover,
       CAST(d.recent_checkouts AS DOUBLE) / NULLIF(CAST(d.recent_views AS DOUBLE), 0) AS view_to_checkout_rate,
       CASE WHEN d.recent_add_to_carts = 0 THEN 'OK'
            WHEN COALESCE(k.total_stock_all_warehouses, 0) <= 0 THEN 'SURGE_STOCKOUT_RISK'
            WHEN CAST(GREATEST(k.total_stock_all_warehouses, 0) AS DOUBLE) / CAST(d.recent_add_to_carts AS DOUBLE)
                 < COALESCE(k.lead_time_days, 7) THEN 'SURGE_STOCKOUT_RISK'
            WHEN CAST(GREATEST(k.total_stock_all_warehouses, 0) AS DOUBLE) / CAST(d.recent_add_to_carts AS DOUBLE)
                 < 2 * COALESCE(k.lead_time_days, 7) THEN 'WARNING'
            ELSE 'OK' END AS demand_alert
FROM demand d
LEFT JOIN silver_products p ON d.product_id = p.product_id
LEFT JOIN stock k ON d.product_id = k.product_id;
