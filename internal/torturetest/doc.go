// Package torturetest holds the whole program against its promise while
// everything around it breaks.
//
// A run has several gateway processes on one store, a vendor that keeps a ledger
// of what it did and answers as it likes, agents that repeat their calls as
// common client libraries do, and a hand that kills, stops and restarts
// processes, cuts, delays and swallows what they say to each other, and sets
// their clocks. Then
// everything is mended and a checker compares three accounts of what happened:
// the vendor's ledger, the agents' notes and the gateway's audit.
//
// A seed fixes what is asked, how the vendor behaves at each arrival and which
// faults come in which order. It cannot fix how the processes are scheduled, so
// a seed repeats a run only roughly.
//
// # Clocks
//
// The store's clock jumps and drifts: Redis's by libfaketime, the embedded
// store's by a wall clock that [Build] compiles into the gateway (package
// inside). On Redis the clocks of the gateways' own machines are off by more than
// a day, one ahead and one behind. Boot clocks stay true, as on a real machine.
//
// No rule about effects, answers or rows is relaxed for it. What the hand keeps
// to, because the gateway promises nothing beyond it:
//
//   - The store's clock stays within a quarter of a day of where it began. A clock
//     set forward past the end of a window, a hold or a vendor's memory ends them,
//     and here each lasts about a day.
//   - In the end Redis's clock is set to the furthest it ever was. A lease is
//     judged by that clock, so one that was given out ahead is over only there.
//
// A lease that ends early needs no excuse: the write is held, and never sent.
//
// A jump beyond the bound of the guard (5 s on Redis, 5 min forward on the
// embedded store) must be noticed: each gateway becomes not ready, and no call
// that began after that, and ended before somebody mended it, may have claimed.
// Then the clock is put back, or the hand does what the gateway says:
// gateway store accept-loss. A gateway on the embedded store must go on by itself
// when the clock is put back, and must not mind one that was set back.
//
// Between the jump and the moment it is noticed, about a second, Redis is claimed
// in by the new clock. That is what the first rule bounds.
package torturetest
