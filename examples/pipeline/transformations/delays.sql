CREATE MATERIALIZED VIEW delays AS
SELECT carrier, avg(dep_delay) AS delay, count(*) AS flights FROM flights GROUP BY carrier;
