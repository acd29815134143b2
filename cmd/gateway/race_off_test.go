//go:build !race

package main

// fanned is how many held writes the test of two replicas makes.
const fanned = 1000
