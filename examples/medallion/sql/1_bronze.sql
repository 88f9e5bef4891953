-- Bronze: what the shop's systems send, one row per key; an insert of a known key replaces.

CREATE TABLE bronze_clickstream_events (
    event_id BIGINT NOT NULL PRIMARY KEY,
    user_id BIGINT,
    session_id STRING,
    event_type STRING,
    page_url STRING,
    product_id BIGINT,
    referrer STRING,
    device_type STRING,
    geo_country STRING,
    geo_region STRING,
    event_timestamp TIMESTAMP NOT NULL,
    ingested_at TIMESTAMP NOT NULL
);

CREATE TABLE bronze_orders (
    order_id BIGINT NOT NULL PRIMARY KEY,
    user_id BIGINT,
    order_status STRING,
    order_total DECIMAL(12,2),
    discount_amount DECIMAL(12,2),
    shipping_cost DECIMAL(12,2),
    payment_method STRING,
    coupon_code STRING,
    created_at TIMESTAMP NOT NULL,
    updated_at TIMESTAMP NOT NULL,
    ingested_at TIMESTAMP NOT NULL
);

CREATE TABLE bronze_order_items (
    order_item_id BIGINT NOT NULL PRIMARY KEY,
    order_id BIGINT NOT NULL,
    product_id BIGINT NOT NULL,
    quantity INT NOT NULL,
    unit_price DECIMAL(10,2) NOT NULL,
    discount_pct DECIMAL(5,2),
    ingested_at TIMESTAMP NOT NULL
);

CREATE TABLE bronze_products (
    product_id BIGINT NOT NULL PRIMARY KEY,
    product_name STRING NOT NULL,
    category STRING,
    brand STRING,
    supplier_id BIGINT,
    list_price DECIMAL(10,2),
    cost_price DECIMAL(10,2),
    weight_kg DECIMAL(6,2),
    is_active BOOLEAN,
    updated_at TIMESTAMP NOT NULL
);

CREATE TABLE bronze_inventory_events (
    inventory_event_id BIGINT NOT NULL PRIMARY KEY,
    product_id BIGINT NOT NULL,
    warehouse_id BIGINT NOT NULL,
    event_type STRING NOT NULL,
    quantity_change INT NOT NULL,
    event_timestamp TIMESTAMP NOT NULL,
    ingested_at TIMESTAMP NOT NULL
);

CREATE TABLE bronze_customers (
    customer_id BIGINT NOT NULL PRIMARY KEY,
    email STRING,
    signup_date DATE,
    customer_tier STRING,
    geo_country STRING,
    geo_region STRING,
    updated_at TIMESTAMP NOT NULL
);

CREATE TABLE bronze_suppliers (
    supplier_id BIGINT NOT NULL PRIMARY KEY,
    supplier_name STRING NOT NULL,
    country STRING,
    lead_time_days INT,
    updated_at TIMESTAMP NOT NULL
);
