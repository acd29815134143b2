// Package vendortest is a vendor for tests that can go wrong in every way a
// real one can, and that counts what reached it.
//
// It owns a raw TCP (or TLS) server, scripted per arrival; Faults, the table of
// everything an answer can be; a name server, a refused port and a test
// authority. An arrival is a complete request head that came in at the socket,
// in whichever protocol was spoken: the count that must stay at one.
//
// It leaves to its users what an arrival or an answer ought to mean. It is for
// tests only and must not reach the binary.
package vendortest
