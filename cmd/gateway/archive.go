package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/archive/bucket"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/seal"
	"holdfast.dev/gateway/internal/trail"
	"holdfast.dev/gateway/internal/usage"
)

// auditFolder is where the embedded store's audit is archived, unless it is said
// otherwise.
const auditFolder = "audit"

// folderPrefix begins a setting that names a folder.
const folderPrefix = "folder:"

// defaultMaxUnsealed is how many audit rows may wait for an archive that fails:
// some 500 MB in the store.
const defaultMaxUnsealed = 1_000_000

// auditSettings are those of the audit's archive.
func auditSettings() []setting {
	return []setting{
		{"audit-archive", "where sealed audit rows go: folder:PATH or s3://BUCKET/PREFIX?endpoint=URL; on Redis all replicas must share it", auditArchive},
		{"audit-seal-after", "how long an audit row may wait before it is sealed with those that came since", duration(func(c *Config) *time.Duration { return &c.AuditSealAfter }, time.Second, time.Hour)},
		{"audit-max-unsealed", "new writes stop while more audit rows than these wait for the archive, as each replica counts; 0: never", count(func(c *Config) *int64 { return &c.AuditMaxUnsealed }, 1<<40)},
	}
}

func auditArchive(c *Config, v string) error {
	if strings.HasPrefix(v, bucket.Scheme) {
		if _, err := bucket.Parse(v); err != nil {
			return err
		}
	} else if rest, ok := strings.CutPrefix(v, folderPrefix); !ok || rest == "" {
		return errors.New("must be folder:PATH or s3://BUCKET/PREFIX?endpoint=URL")
	}
	c.AuditArchive = v
	return nil
}

// auditHot is how long sealed rows stay in the store: disk is cheaper than memory.
func auditHot(cfg Config) time.Duration {
	if cfg.auditHot > 0 {
		return cfg.auditHot
	}
	if cfg.isRedis() {
		return 24 * time.Hour
	}
	return 7 * 24 * time.Hour
}

// openArchive opens the storage that is configured; nil if there is none.
func openArchive(cfg Config) (archive.Storage, error) {
	where := cfg.AuditArchive
	if where == "" && !cfg.isRedis() {
		where = folderPrefix + filepath.Join(cfg.folder(), auditFolder)
	}
	if where == "" {
		return nil, nil
	}
	if strings.HasPrefix(where, bucket.Scheme) {
		o, err := bucket.Parse(where)
		if err != nil {
			return nil, fmt.Errorf("open audit archive: %w", err)
		}
		return bucket.Open(o)
	}
	folder, err := archive.NewFolder(strings.TrimPrefix(where, folderPrefix))
	if err != nil {
		return nil, fmt.Errorf("open audit archive: %w", err)
	}
	return folder, nil
}

// checkArchive says whether the archive's folder could be made or written in, or
// its bucket be listed. The folder beside the embedded store is as good as the
// store's own.
func checkArchive(ctx context.Context, cfg Config) error {
	if path, ok := strings.CutPrefix(cfg.AuditArchive, folderPrefix); ok {
		return checkFolder(path)
	}
	if !strings.HasPrefix(cfg.AuditArchive, bucket.Scheme) {
		return nil
	}
	o, err := bucket.Parse(cfg.AuditArchive)
	if err != nil {
		return err
	}
	b, err := bucket.Open(o)
	if err != nil {
		return err
	}
	defer b.CloseIdle()
	ctx, cancel := context.WithTimeout(ctx, cfg.StoreTimeout)
	defer cancel()
	_, err = b.List(ctx, "", 1)
	return err
}

// sealing is what seals the audit and reads what is sealed; nothing is sealed
// without an archive.
type sealing struct {
	backlog *archive.Backlog
	sealer  *archive.Sealer
	reader  *archive.Reader
}

// openBacklog begins to watch the store for audit rows, if there is an archive.
func (a *App) openBacklog() (err error) {
	if a.archive, err = openArchive(a.cfg); err != nil {
		return err
	}
	if a.archive == nil {
		a.log.Warn("no audit archive is configured: audit rows are not sealed and stay in the store for good (GATEWAY_AUDIT_ARCHIVE)")
		return nil
	}
	cut := archive.DefaultCut()
	cut.Age = a.cfg.AuditSealAfter
	if a.cfg.auditRows > 0 {
		cut.Rows = a.cfg.auditRows
	}
	a.sealing.backlog = archive.NewBacklog(cut, a.cfg.AuditMaxUnsealed)
	a.unwatched = a.store
	a.store = a.sealing.backlog.Watch(a.store)
	return nil
}

// room says whether another audit row may be written.
func (a *App) room() error {
	if a.sealing.backlog == nil {
		return nil
	}
	return a.sealing.backlog.Room()
}

func (a *App) openSealer(ring *seal.Ring, registerer prometheus.Registerer) (err error) {
	if a.archive == nil {
		a.sealing.reader, err = archive.NewReader(a.store, archive.Nowhere{})
		return err
	}
	if a.sealing.sealer, err = archive.NewSealer(archive.Config{
		Store: ofKnownFormat{Store: a.unwatched, doubt: a.losses.doubt}, Storage: a.archive, Signer: ring, Backlog: a.sealing.backlog, Scopes: a.directory,
		Retention: a.directory.AuditRetention, Hot: auditHot(a.cfg),
		Derivation: usageFold{}, Terms: audit.EachTerm, Metrics: registerer, Logger: a.log,
	}); err != nil {
		return err
	}
	a.sealing.reader, err = archive.NewReader(a.store, a.archive)
	return err
}

// openTrail reads the audit, sealed or not.
func (a *App) openTrail() *trail.Log {
	if a.sealing.reader == nil {
		return trail.New(a.store, nil)
	}
	return trail.New(a.store, a.sealing.reader)
}

// usageFold adds rows to the usage figures in the step that seals them.
type usageFold struct{}

func (usageFold) Fetch(after string, rows []ledger.Row) []ledger.Fetch {
	return usage.Fetch(usage.Batch{After: after, Rows: rows})
}

func (usageFold) Fold(step *ledger.Step, seen ledger.Snapshot, after string, rows []ledger.Row) error {
	return usage.Fold(step, seen, usage.Batch{After: after, Rows: rows}, archive.DefaultRetention)
}
