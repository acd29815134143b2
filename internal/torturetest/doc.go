// Package torturetest holds the whole program against its promise while
// everything around it breaks.
//
// A run has several gateway processes on one store, a vendor that keeps a ledger
// of what it did and answers as it likes, agents that repeat their calls as
// common client libraries do, and a hand that kills, stops and restarts
// processes and cuts, delays and swallows what they say to each other. Then
// everything is mended and a checker compares three accounts of what happened:
// the vendor's ledger, the agents' notes and the gateway's audit.
//
// A seed fixes what is asked, how the vendor behaves at each arrival and which
// faults come in which order. It cannot fix how the processes are scheduled, so
// a seed repeats a run only roughly.
package torturetest
