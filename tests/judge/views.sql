-- The cases of the judge. Each head names a case; the line below it says what it is about; one SELECT follows.

-- C01 three_valued_filter
-- a NULL comparison stays out on both sides of NOT
SELECT id, v FROM t WHERE NOT (v > 10);

-- C03 invisible_update
-- columns that are not selected may change without a trace
SELECT id, g FROM t;

-- C05 distinct_bag
-- a row shows while at least one copy is there
SELECT DISTINCT a, s FROM bag;

-- C07 global_agg_empty
-- one row always, also over nothing
SELECT COUNT(*) AS c, COUNT(v) AS cv, SUM(v) AS s, MIN(v) AS mn, MAX(v) AS mx, AVG(v) AS a FROM t;

-- C09 group_no_agg
-- grouping without an aggregate is DISTINCT
SELECT g, b FROM t GROUP BY g, b;

-- C11 min_max_string_bag
-- extremes of strings with repeated copies; '' is not NULL
SELECT a, MIN(s) AS mn, MAX(s) AS mx, COUNT(s) AS c FROM bag GROUP BY a;

-- C13 avg_int_nulls
-- averages when every value of a group turns NULL
SELECT g, AVG(v) AS a, SUM(v) / NULLIF(COUNT(v), 0) AS r FROM t GROUP BY g;

-- C15 sum_distinct_mixed
-- distinct and plain sums side by side
SELECT g, SUM(DISTINCT v) AS sdv, SUM(v) AS s, COUNT(DISTINCT v) AS cd FROM t GROUP BY g;

-- C17 conditional_distinct_by_day
-- conditional distinct counts of past days
SELECT date_trunc('day', ts) AS dy, COUNT(DISTINCT CASE WHEN typ = 'buy' THEN uid END) AS buyers, COUNT(DISTINCT uid) AS users, SUM(CASE WHEN typ = 'buy' THEN amt ELSE 0 END) AS rev FROM ev GROUP BY date_trunc('day', ts);

-- C19 having_duplicates
-- multiplicities that cross the HAVING bound
SELECT a, s, COUNT(*) AS c FROM bag GROUP BY a, s HAVING COUNT(*) > 1;

-- C21 string_agg_sorted
-- a group of NULLs only still has its row
SELECT a, array_join(array_sort(collect_list(s)), '|') AS j FROM bag GROUP BY a;

-- C23 bool_aggs
-- three-valued booleans under and/or
SELECT g, bool_and(b) AS e, bool_or(b) AS s, every(v > 0) AS p FROM t GROUP BY g;

-- C25 stats_small_n
-- statistics of three, two, one and no rows
SELECT g, var_pop(v) AS vp, stddev_samp(v) AS ss, covar_pop(v, k) AS cp, corr(v, k) AS co FROM t GROUP BY g;

-- C27 variance_cancellation
-- variance of large, close numbers without drift
SELECT g, var_pop(f) AS vp, stddev_pop(f) AS sp FROM t GROUP BY g;

-- C29 mode_deterministic
-- the most frequent value; the smallest at a tie
SELECT g, mode() WITHIN GROUP (ORDER BY k) AS m FROM t GROUP BY g;

-- C31 max_of_sums
-- extremes over sums of groups
SELECT MAX(s) AS m, MIN(s) AS mi FROM (SELECT g, SUM(v) AS s FROM t GROUP BY g) q;

-- C33 cube_grouping_sets
-- three grouping sets with a distinct count
SELECT g, b, k, COUNT(*) AS c, COUNT(DISTINCT v) AS dv FROM t GROUP BY GROUPING SETS ((g), (b, k), ());

-- C35 expr_group_keys
-- groups by expressions of instants and negative numbers
SELECT date_trunc('hour', ts) AS h, pmod(k, 3) AS m, COUNT(*) AS c FROM t GROUP BY date_trunc('hour', ts), pmod(k, 3);

-- C37 float_key_group
-- 0.0 and -0.0 are one group, all NaN another
SELECT f, COUNT(*) AS c FROM t GROUP BY f;

-- C39 null_safe_join
-- NULL keys that join each other
SELECT l.id AS lid, r.id AS rid FROM l JOIN r ON l.x <=> r.x;

-- C41 right_join
-- a condition on the preserved side decides the match, not the row
SELECT l.id AS lid, r.id AS rid, r.z FROM l RIGHT JOIN r ON l.x = r.x AND r.z > 0;

-- C43 left_join_left_predicate
-- the same with LEFT
SELECT l.id, l.y, r.z FROM l LEFT JOIN r ON l.x = r.x AND l.y > 0;

-- C45 anti_by_isnull
-- the anti-join written with IS NULL
SELECT l.id, l.x FROM l LEFT JOIN r ON l.x = r.x WHERE r.id IS NULL;

-- C47 left_semi_dups
-- a semi-join keeps the copies of the left side
SELECT b1.a, b1.s FROM bag b1 LEFT SEMI JOIN bag2 b2 ON b1.a = b2.a;

-- C49 exists_correlated
-- EXISTS below OR
SELECT id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.x = l.x AND r.z > l.y) OR l.y IS NULL;

-- C51 scalar_global_threshold
-- a threshold that moves with the table it filters
SELECT id, v FROM t WHERE v > (SELECT AVG(v) FROM t);

-- C53 self_join
-- one change on both sides of a join at once
SELECT a.id AS aid, b.id AS bid FROM t a JOIN t b ON a.g = b.g AND a.v < b.v;

-- C55 three_way_join
-- three inputs that change together
SELECT l.id AS lid, r.id AS rid, d.name FROM l JOIN r ON l.x = r.x JOIN dim d ON d.k = r.z;

-- C57 cross_theta
-- a join without an equality on columns
SELECT l.id AS lid, r.id AS rid FROM l CROSS JOIN r WHERE l.y + r.z = 10;

-- C59 join_on_aggregate
-- a group that vanishes leaves NULLs behind
SELECT d.k, d.name, a.n, a.s FROM dim d LEFT JOIN (SELECT uid, COUNT(*) AS n, SUM(amt) AS s FROM ev GROUP BY uid) a ON a.uid = d.k;

-- C61 invariant_diamond
-- two ways to one sum, exactly equal after every epoch
SELECT (SELECT SUM(v) FROM t) - (SELECT SUM(s) FROM (SELECT g, SUM(v) AS s FROM t GROUP BY g) q) AS must_be_zero;

-- C63 coerced_key_join
-- keys that are expressions
SELECT t.id, d.k FROM t JOIN dim d ON CAST(t.d AS INT) = d.k AND lower(t.g) = lower(d.name);

-- C65 in_subquery_agg
-- membership decided by the size of the group
SELECT id, g, v FROM t WHERE g IN (SELECT g FROM t GROUP BY g HAVING COUNT(*) >= 3);

-- C67 union_all
-- one table twice in a union
SELECT a, s FROM bag UNION ALL SELECT a, s FROM bag2 UNION ALL SELECT a, s FROM bag;

-- C69 intersect
-- NULL equals NULL in set operations
SELECT a, s FROM bag INTERSECT SELECT a, s FROM bag2;

-- C71 except
-- a row returns once when its last right copy leaves
SELECT a, s FROM bag EXCEPT SELECT a, s FROM bag2;

-- C73 row_number_all
-- an insert at the front renumbers its partition
SELECT id, g, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v NULLS FIRST, id) AS rn FROM t;

-- C75 rank_ties
-- ties that break and form
SELECT id, g, RANK() OVER (PARTITION BY g ORDER BY v) AS rk, DENSE_RANK() OVER (PARTITION BY g ORDER BY v) AS dr FROM t;

-- C77 lag_lead
-- only neighbours change
SELECT id, g, LAG(v) OVER w AS pv, LEAD(v, 2, -1) OVER w AS nv, v - LAG(v) OVER w AS dv FROM t WINDOW w AS (PARTITION BY g ORDER BY ts, id);

-- C79 rows_frame
-- frames by rows around a deleted row
SELECT id, g, AVG(v) OVER (PARTITION BY g ORDER BY ts, id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS ma, MAX(v) OVER (PARTITION BY g ORDER BY ts, id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS mx FROM t;

-- C81 range_numeric_minmax
-- a minimum over a sliding range of values
SELECT id, g, MIN(v) OVER (PARTITION BY g ORDER BY k RANGE BETWEEN 2 PRECEDING AND 2 FOLLOWING) AS mn FROM t;

-- C83 first_last_value
-- first, last and second value of a partition
SELECT id, g, FIRST_VALUE(v) IGNORE NULLS OVER (PARTITION BY g ORDER BY id) AS fv, LAST_VALUE(v) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS lv, NTH_VALUE(v, 2) OVER (PARTITION BY g ORDER BY id) AS nv FROM t;

-- C85 global_window
-- a running sum without partitions
SELECT id, SUM(v) OVER (ORDER BY id) AS rs FROM t;

-- C87 sessions
-- sessions that merge and split
SELECT uid, sid, COUNT(*) AS n, MIN(ts) AS t0, MAX(ts) AS t1 FROM (SELECT *, SUM(nw) OVER (PARTITION BY uid ORDER BY ts, eid) AS sid FROM (SELECT *, CASE WHEN ts > LAG(ts) OVER (PARTITION BY uid ORDER BY ts, eid) + INTERVAL 30 MINUTES THEN 1 ELSE 0 END AS nw FROM ev) q1) q2 GROUP BY uid, sid;

-- C89 streak_islands
-- islands of equal values
SELECT uid, typ, COUNT(*) AS len, MIN(eid) AS e0 FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY ts, eid) - ROW_NUMBER() OVER (PARTITION BY uid, typ ORDER BY ts, eid) AS grp FROM ev) q GROUP BY uid, typ, grp;

-- C91 explode_outer_pos
-- empty and NULL arrays keep their row
SELECT id, p, x FROM doc LATERAL VIEW OUTER posexplode(xs) e AS p, x;

-- C93 order_limit
-- the first three of an order
SELECT id, v FROM t ORDER BY v DESC NULLS LAST, id LIMIT 3;

-- C95 const_union
-- constant rows beside counted ones
SELECT 'n' AS what, COUNT(*) AS n FROM t UNION ALL SELECT 'zero', 0 UNION ALL SELECT g, 1 FROM t WHERE v = 1;

-- C97 four_level_stack
-- group, join, rank and group again
WITH a AS (SELECT uid, date_trunc('day', ts) AS dy, SUM(amt) AS s FROM ev WHERE typ <> 'void' GROUP BY uid, date_trunc('day', ts)), b AS (SELECT a.*, d.name FROM a JOIN dim d ON a.uid = d.k), c AS (SELECT *, RANK() OVER (PARTITION BY dy ORDER BY s DESC, uid) AS rk FROM b) SELECT name, COUNT(*) AS wins, SUM(s) AS won FROM c WHERE rk = 1 GROUP BY name;

-- C99 tz_dst_day
-- days of a zone with daylight saving time
SELECT to_date(from_utc_timestamp(ts, 'America/New_York')) AS ny_day, COUNT(*) AS c, MIN(hour(ts)) AS h FROM ev GROUP BY to_date(from_utc_timestamp(ts, 'America/New_York'));

-- C101 string_keys_exact
-- strings are equal only byte by byte
SELECT s, length(s) AS n, COUNT(*) AS c FROM bag GROUP BY s;

-- C103 division_guard
-- a divisor that is zero only between two changes
SELECT g, SUM(v) / NULLIF(SUM(k), 0) AS ratio, CASE WHEN SUM(k) > 0 THEN SUM(d) / SUM(k) END AS r2 FROM t GROUP BY g;
