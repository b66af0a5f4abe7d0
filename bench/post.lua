-- wrk: POST the bytes of the file $BODY as $CTYPE, closed loop; print what was measured as one JSON line.
local file = assert(io.open(os.getenv("BODY"), "rb"))
wrk.method = "POST"
wrk.body = file:read("*a")
wrk.headers["Content-Type"] = os.getenv("CTYPE")
file:close()

function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format(
    'MEASURED {"requests": %d, "seconds": %.6f, "p50_ms": %.3f, "p99_ms": %.3f, "failed": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
