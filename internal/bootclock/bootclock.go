// Package bootclock reads the machine's own measure of passing time, which
// nobody sets: it runs from the start of the machine and goes on while the
// machine sleeps. A clock that people and servers set is held against it.
//
// It owns nothing but the reading; what a contradiction means is for its users.
package bootclock
