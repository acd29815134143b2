package redistest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// StartCluster runs a Redis Cluster of so many masters, without replicas, with
// the slots spread evenly, and stops it when the test ends.
func StartCluster(t testing.TB, masters int, config ...string) []*Server {
	t.Helper()
	return StartClusterOf(t, masters, func(int) []string { return config })
}

// StartClusterOf is [StartCluster] with a configuration for each node.
func StartClusterOf(t testing.TB, masters int, config func(node int) []string) []*Server {
	t.Helper()
	nodes := make([]*Server, masters)
	bus := make([]int, masters)
	for i := range nodes {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		bus[i] = port
		nodes[i] = Start(t, append([]string{"cluster-enabled yes", "cluster-port " + strconv.Itoa(port)}, config(i)...)...)
	}
	if err := join(nodes, bus, func(s *Server, args ...string) (string, error) {
		return s.Do(t.Context(), args...)
	}); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// StartClusterReplica adds a replica of one of a cluster's masters, waits until
// it is in step, and stops it when the test ends.
func StartClusterReplica(t testing.TB, master *Server, config ...string) *Server {
	t.Helper()
	bus, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	s := Start(t, append([]string{"cluster-enabled yes", "cluster-port " + strconv.Itoa(bus)}, config...)...)
	do := func(n *Server, args ...string) string {
		t.Helper()
		reply, err := n.Do(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	do(master, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
	id := do(master, "CLUSTER", "MYID")
	_, peer, _ := strings.Cut(myself(do(master, "CLUSTER", "NODES")), "@")
	do(s, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(master.port), peer)
	if err := s.until(t.Context(), "the master is not known", func() bool {
		_, err := s.Do(t.Context(), "CLUSTER", "REPLICATE", id)
		return err == nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.until(t.Context(), "the replica is not in step", func() bool {
		info, err := master.Do(t.Context(), "INFO", "replication")
		nodes, err2 := s.Do(t.Context(), "CLUSTER", "INFO")
		return err == nil && err2 == nil && strings.Contains(info, "state=online") && strings.Contains(nodes, "cluster_state:ok")
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// myself is a node's own address, host:port@bus, among those it lists.
func myself(nodes string) string {
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); len(f) > 2 && strings.Contains(f[2], "myself") {
			addr, _, _ := strings.Cut(f[1], ",")
			return addr
		}
	}
	return ""
}

type doer func(s *Server, args ...string) (string, error)

// join makes the nodes one cluster and waits until each of them says so.
func join(nodes []*Server, bus []int, do doer) error {
	for i, s := range nodes {
		first, last := i*slots/len(nodes), (i+1)*slots/len(nodes)-1
		if _, err := do(s, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)); err != nil {
			return fmt.Errorf("give slots to a node: %w", err)
		}
		if _, err := do(nodes[0], "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(s.port), strconv.Itoa(bus[i])); err != nil {
			return fmt.Errorf("introduce a node: %w", err)
		}
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, s := range nodes {
		for !joined(s, len(nodes), do) {
			select {
			case <-tick.C:
			case <-limit.C:
				return errors.New("start redis cluster: the nodes did not find each other")
			}
		}
	}
	return nil
}

func joined(s *Server, nodes int, do doer) bool {
	info, err := do(s, "CLUSTER", "INFO")
	return err == nil && strings.Contains(info, "cluster_state:ok") &&
		strings.Contains(info, "cluster_size:"+strconv.Itoa(nodes)+"\r")
}
