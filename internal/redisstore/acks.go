package redisstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"holdfast.dev/gateway/internal/ledger"
)

// ack is how sure a step must be before it counts.
type ack struct {
	mode     ackMode
	replicas int // of byReplicas
}

type ackMode int

const (
	// byAuto is byReplicas with one where a master has replicas, else byAOF.
	byAuto ackMode = iota
	// byNone: what Redis has in memory counts.
	byNone
	// byAOF: in the append-only file, synced, before the reply. The server sees
	// to that by itself (appendfsync always); readiness sees to the setting.
	byAOF
	// byReplicas: that many replicas have it in memory.
	byReplicas
)

// maxReplicas is far above what anybody attaches to a master.
const maxReplicas = 100

// CheckAck says whether [Options].Ack can be what the text says.
func CheckAck(s string) error {
	_, err := parseAck(s)
	return err
}

func parseAck(s string) (ack, error) {
	if count, ok := strings.CutPrefix(s, "replicas:"); ok {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || n > maxReplicas {
			return ack{}, errors.New("the acknowledgement replicas:N needs a number from 1 to 100")
		}
		return ack{mode: byReplicas, replicas: n}, nil
	}
	mode, ok := map[string]ackMode{"": byAuto, "auto": byAuto, "none": byNone, "aof": byAOF}[s]
	if !ok {
		return ack{}, errors.New("the acknowledgement must be auto, none, aof or replicas:N")
	}
	return ack{mode: mode}, nil
}

// waits says whether steps may have to wait for replicas.
func (a ack) waits() bool { return a.mode == byAuto || a.mode == byReplicas }

// need is how many replicas must have a step of a master with so many.
func (a ack) need(attached int) int {
	switch a.mode {
	case byReplicas:
		return a.replicas
	case byAuto:
		return min(attached, 1)
	case byNone, byAOF:
		return 0
	}
	return maxReplicas // cannot be; nothing is acknowledged
}

// acks has an acknowledger for each master, and what is known of its replicas.
type acks struct {
	ack     ack
	script  script
	timeout time.Duration

	mu       sync.Mutex
	byMaster map[string]*acknowledger // by the address the client knows it under
	attached map[string]int           // replicas, as of the last check
}

func newAcks(a ack, sc script, timeout time.Duration) *acks {
	return &acks{
		ack: a, script: sc, timeout: timeout,
		byMaster: map[string]*acknowledger{}, attached: map[string]int{},
	}
}

// learn notes how many replicas a master has.
func (a *acks) learn(node *redis.Client, replicas int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attached[node.Options().Addr] = replicas
}

// need is how many replicas must have a step; false if the master has not been
// looked at yet.
func (a *acks) need(node *redis.Client) (int, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	attached, ok := a.attached[node.Options().Addr]
	return a.ack.need(attached), ok || a.ack.mode != byAuto
}

func (a *acks) of(node *redis.Client) *acknowledger {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := node.Options().Addr
	if a.byMaster[name] == nil {
		// The options dial whoever is the master when they are used (Sentinel), and
		// one connection is all that a round takes.
		own := *node.Options()
		own.PoolSize, own.MinIdleConns, own.MaxIdleConns, own.MaxActiveConns = 1, 0, 1, 1
		a.byMaster[name] = &acknowledger{
			script: a.script, timeout: a.timeout,
			connect: func() *redis.Client { opts := own; return redis.NewClient(&opts) },
		}
	}
	return a.byMaster[name]
}

func (a *acks) close() {
	a.mu.Lock()
	all := a.byMaster
	a.byMaster = map[string]*acknowledger{}
	a.mu.Unlock()
	for _, one := range all {
		one.close()
	}
}

// acknowledged returns nil once an applied step counts.
func (s *Store) acknowledged(ctx context.Context, ks keyspace, nonce ledger.Nonce) error {
	if !s.ack.waits() {
		return nil
	}
	node, err := s.masterOf(ctx, ks)
	if err != nil {
		return err
	}
	need, known := s.acks.need(node)
	if !known {
		// Whether the server is fit is for Ready to say; here its replicas matter.
		if err := s.checkServer(ctx, node); err != nil && !errors.Is(err, ledger.ErrNotReady) {
			return err
		}
		need, _ = s.acks.need(node)
	}
	if need == 0 {
		return nil
	}
	if err := s.acks.of(node).confirm(ctx, ks, nonce, need); err != nil {
		if c, ok := s.client.(*redis.ClusterClient); ok {
			c.ReloadState(ctx) // the slot may have another master
		}
		return err
	}
	return nil
}

// masterOf is the master that keeps a scope, as far as the client knows.
func (s *Store) masterOf(ctx context.Context, ks keyspace) (*redis.Client, error) {
	switch c := s.client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		node, err := c.MasterForKey(ctx, ks.rows())
		if err != nil {
			return nil, unavailable(err)
		}
		return node, nil
	default:
		return nil, notReady("this kind of redis cannot be waited for")
	}
}
