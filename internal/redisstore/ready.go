package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/loss"
)

// Ready says whether a claim made now would be safe: every master answers, is
// fit to keep what it is given, lets this user run what the scripts run, and holds
// the data that [Init] began, in a format that this release knows, with no loss
// noticed that was not accepted ([Store.Beat]). It asks the servers each time.
//
// The acknowledgement decides what "keep" means. "none": Redis has it in memory;
// a crash or a failover can lose a claim, and a lost claim can become a second
// write. "aof": it is in the append-only file, synced, before the answer
// (appendonly yes, appendfsync always), which survives a crash but not the loss
// of that server. "replicas:N": N replicas have it in memory, which survives the
// loss of the master if one of those N takes over. "auto" is "replicas:1" for a
// master that has replicas and "aof" for one that has none. A setting that
// cannot be read counts as not set.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.readyWithin(ctx); err != nil {
		return fmt.Errorf("check redis store: %w", err)
	}
	return nil
}

func (s *Store) readyWithin(ctx context.Context) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := s.eachMaster(ctx, s.checkServer); err != nil {
		return err
	}
	if err := s.checkRights(ctx); err != nil {
		return err
	}
	return s.checkData(ctx)
}

// checkData says whether the data is what [Init] began, as far as is known.
func (s *Store) checkData(ctx context.Context) error {
	snap, err := s.Read(ctx, ledger.Platform, append(loss.Fetch(), ledger.Fetch{Key: epochKey()}, ledger.Fetch{Key: formatKey()})...)
	if err != nil {
		return err
	}
	if err := s.format.check(snap); err != nil {
		return err
	}
	if _, ok := snap.Get(epochKey()); !ok {
		return notReady("this redis holds no store; if it is new, run `gateway store init`; " +
			"if it is not, its data may have been lost, and with it which writes were made")
	}
	noticed := loss.NoticedIn(snap)
	if noticed == nil {
		noticed = s.beats.kept()
	}
	if noticed != nil {
		return noticed.Error()
	}
	return nil
}

func notReady(why string) error { return fmt.Errorf("%w: %s", ledger.ErrNotReady, why) }

// eachMaster runs check on every master; the first error stands.
func (s *Store) eachMaster(ctx context.Context, check func(context.Context, *redis.Client) error) error {
	switch c := s.client.(type) {
	case *redis.Client:
		return check(ctx, c)
	case *redis.ClusterClient:
		err := c.ForEachMaster(ctx, check)
		if err != nil && !errors.Is(err, ledger.ErrNotReady) && !errors.Is(err, ledger.ErrUnavailable) {
			// Not from a check: the cluster's masters could not be found.
			err = unavailable(err)
		}
		return err
	default:
		return notReady("this kind of redis cannot be checked")
	}
}

// checkServer asks one server about itself.
func (s *Store) checkServer(ctx context.Context, node *redis.Client) error {
	info, err := node.Do(ctx, "info").Text()
	if err != nil {
		return meaning(err)
	}
	facts := parseInfo(info)
	settings, err := node.ConfigGet(ctx, "*appendfsync*").Result()
	if err != nil {
		settings = nil // what this user may not read counts as not set
	}
	s.acks.learn(node, facts.replicas())
	if why := facts.faults(s.ack, settings); len(why) > 0 {
		return notReady(strings.Join(why, "; "))
	}
	return nil
}

// checkRights asks what this user may not do, before a step finds out half way.
func (s *Store) checkRights(ctx context.Context) error {
	reply, err := s.run(ctx, s.scripts.rights, newCall([]string{keysOf(ledger.Platform).rows()}, flag(s.ack.waits())))
	if err != nil {
		return err
	}
	names, err := decodeList(reply)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return nil
	}
	return notReady(fmt.Sprintf("the redis user may not run %s on the store's keys", joinNames(names)))
}

func joinNames(names []any) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.ToUpper(fmt.Sprint(n))
	}
	return strings.Join(out, ", ")
}
