package benchtest

// Plan is what the load generator is asked for: closed-loop callers, each with a
// kept connection of its own and one request at a time.
type Plan struct {
	Addr string // host:port
	Path string
	Key  string // bearer token; "" sends none
	// Body is JSON in which each run of [Hole] is overwritten with a number.
	Body string
	// First is the number of the first request; the next ones count up. With Span
	// they begin again after so many.
	First, Span int64
	Callers     int
	Count       int64  // ends after so many requests; 0: by time
	WarmMS      int64  // not counted
	TimeMS      int64  // counted
	Expect      string // what the head of every answer has to hold
	PIDs        []int  // processes whose CPU time is read where counting begins and ends
}

// Outcome is what came of a plan. Anything but status 200 is an error, and so is
// an answer without what was expected.
type Outcome struct {
	Error    string
	Requests int64 // answered while it was counted
	Sent     int64 // all that were made
	Seconds  float64
	P50, P99 float64   // seconds
	CPU      []float64 // seconds of each process
}

// Hole is where a request's number goes in a body: twelve digits.
const Hole = "############"

// sample is an outcome as the frame takes it. CPU is per request and of the first
// process.
func (o Outcome) sample() Sample {
	s := Sample{
		"rate": float64(o.Requests) / o.Seconds, "requests": float64(o.Requests),
		"p50_ms": o.P50 * 1e3, "p99_ms": o.P99 * 1e3,
	}
	if len(o.CPU) > 0 && o.Requests > 0 {
		s["cpu_us"] = o.CPU[0] / float64(o.Requests) * 1e6
	}
	return s
}
