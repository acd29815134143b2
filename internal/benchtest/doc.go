// Package benchtest measures the program against the floor and the field, side by
// side, and prints one table (docs/performance.md).
//
// It owns the frame: contests between contestants, each a process of its own as
// far as its own costs are measured, whose short rounds are interleaved, so that
// whatever else the machine does meets all of them; medians over the rounds; and
// the machine they were counted on. Nothing here fails because it is slow: a round
// fails only where an answer is wrong, which is never counted as throughput.
package benchtest
