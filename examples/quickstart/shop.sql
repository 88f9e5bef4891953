CREATE TABLE customers (id INT PRIMARY KEY, name STRING NOT NULL, city STRING NOT NULL);
CREATE TABLE products (id INT PRIMARY KEY, name STRING NOT NULL, price DECIMAL(10,2) NOT NULL);
CREATE TABLE orders (id INT PRIMARY KEY, customer_id INT NOT NULL, product_id INT NOT NULL, quantity INT NOT NULL);

-- Every order with its names and its worth: a join of all three tables.
CREATE VIEW order_lines AS
SELECT o.id, c.city, c.name AS customer, p.name AS product, o.quantity * p.price AS worth
FROM orders o
JOIN customers c ON c.id = o.customer_id
JOIN products p ON p.id = o.product_id;

-- An aggregate over that view.
CREATE VIEW revenue_by_city AS
SELECT city, count(*) AS orders, sum(worth) AS revenue
FROM order_lines
GROUP BY city;

-- A window over an aggregate: the best customer of each city.
CREATE VIEW best_customers AS
SELECT city, customer, revenue
FROM (
    SELECT city, customer, revenue, row_number() OVER (PARTITION BY city ORDER BY revenue DESC, customer) AS place
    FROM (SELECT city, customer, sum(worth) AS revenue FROM order_lines GROUP BY city, customer) AS spent
) AS placed
WHERE place = 1;
