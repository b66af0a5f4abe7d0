-- wrk: POST the bytes of the file $BODY as $CTYPE, closed loop; print what was measured as one JSON line.
-- If $IN_TURN is set, each line of the file is a body of its own, and they are sent in turn.
-- $AUTHORIZATION, if set, is sent along. Without $BODY it is a GET, which accepts $CTYPE.
if (os.getenv("AUTHORIZATION") or "") ~= "" then wrk.headers["Authorization"] = os.getenv("AUTHORIZATION") end
local bodies = {}
if (os.getenv("BODY") or "") == "" then
  wrk.headers["Accept"] = os.getenv("CTYPE")
else
  local file = assert(io.open(os.getenv("BODY"), "rb"))
  wrk.method = "POST"
  wrk.headers["Content-Type"] = os.getenv("CTYPE")
  if (os.getenv("IN_TURN") or "") ~= "" then
    for line in file:lines() do bodies[#bodies + 1] = line end
  else
    wrk.body = file:read("*a")
  end
  file:close()
end

if #bodies > 0 then
  local requests, sent = {}, 0
  init = function(_)
    for i, body in ipairs(bodies) do requests[i] = wrk.format(nil, nil, nil, body) end
  end
  request = function()
    sent = sent + 1
    return requests[sent % #requests + 1]
  end
end

function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format(
    'MEASURED {"requests": %d, "seconds": %.6f, "p50_ms": %.3f, "p99_ms": %.3f, "failed": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
