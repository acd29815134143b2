package benchtest

import "slices"

// storeContests measure what stands below the gateway's path: the rules over each
// of the stores.
func storeContests(short bool) []Entry {
	return slices.Concat(embeddedContests(short), redisContests(short), sizeContests(short), ageContests())
}

// fewer is the numbers of callers that are tried.
func fewer(short bool, numbers ...int) []int {
	if short {
		return numbers[:1]
	}
	return numbers
}
