package dedupe

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

func TestRecentIsBounded(t *testing.T) {
	var r recent
	key := func(i int) (k recentKey) {
		binary.BigEndian.PutUint64(k.identity[:], uint64(i))
		return k
	}
	settled := func(size int) settledView {
		version := ledger.NewNonce().Version()
		return settledView{binding: version, bound: stored{Record: &Record{}, version: version}, answer: make([]byte, size)}
	}
	const most = recentBytes / recordBytes
	for i := range most + 10 {
		r.put(key(i), settled(0))
	}
	require.Len(t, r.known, most)
	_, ok := r.get(key(9))
	require.False(t, ok, "the oldest go first")
	_, ok = r.get(key(10))
	require.True(t, ok)

	r.put(key(1), settled(recentAnswer+1))
	_, ok = r.get(key(1))
	require.False(t, ok)

	v := settled(recentAnswer)
	for range 3 {
		r.put(key(1), v)
	}
	require.LessOrEqual(t, r.bytes, recentBytes)
	require.Equal(t, 1, countOf(r.order, key(1)), "what is remembered already takes no second place")

	for range 2 * most { // changes of one write push out the others, and never grow
		r.put(key(2), settled(100))
		r.drop(key(2))
	}
	require.LessOrEqual(t, r.bytes, recentBytes)
	require.LessOrEqual(t, len(r.order), most)
	require.Empty(t, r.known)
}

func countOf(list []remembered, k recentKey) (n int) {
	for _, p := range list {
		if p.key == k {
			n++
		}
	}
	return n
}
