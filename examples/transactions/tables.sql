-- What the support desk looks at: transactions as the front end sends them, and whose they are.
CREATE TABLE users (user_id INT PRIMARY KEY, name STRING, email STRING, tier STRING);
CREATE TABLE transactions (
    transaction_id BIGINT PRIMARY KEY, user_id INT, amount DECIMAL(12, 2), currency STRING, merchant STRING,
    status STRING, timestamp TIMESTAMP
);
CREATE VIEW support_desk AS
    SELECT t.transaction_id, t.user_id, u.name, u.email, u.tier, t.amount, t.currency, t.merchant, t.status, t.timestamp
    FROM transactions t JOIN users u ON t.user_id = u.user_id;
