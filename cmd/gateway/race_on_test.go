//go:build race

package main

// fanned is smaller under the race detector, which makes everything slower.
const fanned = 100
