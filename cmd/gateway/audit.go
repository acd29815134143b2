package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast.dev/gateway/internal/archive"
)

func auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Export an audit log, prove it, and see what it was signed with"}
	cmd.AddCommand(auditExportCommand(), auditVerifyCommand(), auditKeysCommand())
	return cmd
}

// errNotWhole says that a log is not as it was written; the output says where.
var errNotWhole = errors.New("the log is not whole")

// errOtherTenant says that a log is whole, and not the one that was asked about.
var errOtherTenant = errors.New("the log is not of the tenant that --tenant names")

func auditVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify FILE|-", Short: "Say whether an exported audit log is whole, or what was done to it and where",
		Long: `Read an audit log, as gateway audit export writes it, and say up to which row it
is whole, or what was changed, removed, inserted or swapped and where. Nothing is
asked of a gateway: what counts is the public key, and a checkpoint that was put
aside before. Without a checkpoint nobody can say whether the end was cut off.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("give one file, or - for standard input")}
			}
			return nil
		},
	}
	keys := cmd.Flags().StringArray("key", nil, "public key that may have signed it, in base64; may be given several times (gateway audit keys)")
	later := cmd.Flags().String("checkpoint", "", "a checkpoint of the same log, put aside when it was at least as long: a file, or the JSON itself")
	tenant := cmd.Flags().String("tenant", "", "the tenant whose log it must be; without it any tenant's log that is whole passes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		trusted, err := parseKeys(*keys)
		if err != nil {
			return usageError{err}
		}
		mark, err := parseLater(*later)
		if err != nil {
			return usageError{err}
		}
		in := cmd.InOrStdin()
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return fmt.Errorf("open log: %w", err)
			}
			defer func() { _ = f.Close() }()
			in = f
		}
		return verifyLog(in, trusted, mark, *tenant, cmd.OutOrStdout())
	}
	return cmd
}

func parseKeys(texts []string) (archive.Keys, error) {
	if len(texts) == 0 {
		return nil, errors.New("--key is required: the public key that the log must be signed with")
	}
	keys := archive.NewKeys()
	for _, text := range texts {
		key, err := archive.ParseKey(text)
		if err != nil {
			return nil, fmt.Errorf("--key: %w", err)
		}
		keys[archive.KeyID(key)] = key
	}
	return keys, nil
}

// maxCheckpoint bounds a file that is to hold one checkpoint.
const maxCheckpoint = 64 << 10

func parseLater(where string) (*archive.Checkpoint, error) {
	if where == "" {
		return nil, nil
	}
	text := []byte(where)
	if !strings.HasPrefix(strings.TrimSpace(where), "{") {
		f, err := os.Open(where)
		if err != nil {
			return nil, fmt.Errorf("--checkpoint: %w", err)
		}
		defer func() { _ = f.Close() }()
		if text, err = io.ReadAll(io.LimitReader(f, maxCheckpoint)); err != nil {
			return nil, fmt.Errorf("--checkpoint: %w", err)
		}
	}
	c, err := archive.ParseCheckpoint(text)
	if err != nil {
		return nil, fmt.Errorf("--checkpoint: %w", err)
	}
	return &c, nil
}

func verifyLog(in io.Reader, keys archive.Keys, later *archive.Checkpoint, tenant string, out io.Writer) error {
	r, err := archive.Verify(in, keys, later)
	if err != nil {
		return err
	}
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if r.Segments > 0 {
		say("log of %s (%s): %d segments, %d rows", tenantName(r.Tenant), r.Scope, r.Segments, r.Rows)
	}
	for _, f := range r.Findings {
		say("%s", f)
	}
	if r.More > 0 {
		say("and %d findings more", r.More)
	}
	if r.Begins > 1 {
		say("begins at row %d: earlier rows are not in it, as after their retention", r.Begins)
	}
	switch {
	case r.Proven > 0:
		say("whole from row %d through row %d of %s", r.Begins, r.Proven, r.ProvenAt.UTC().Format(time.RFC3339Nano))
	default:
		say("nothing is proven")
	}
	if r.Open > 0 && r.Proven > 0 {
		say("%d rows behind it are not sealed yet: nothing proves them", r.Open)
	}
	switch {
	case r.Final && r.Whole():
		say("the tenant was deleted and its log ended there")
	case later != nil && r.Whole():
		say("it leads to the later checkpoint")
	case r.Whole():
		say("whether more rows followed only a later checkpoint can show (--checkpoint)")
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	switch {
	case !r.Whole():
		return errNotWhole
	case tenant != "" && r.Tenant != tenant:
		return errOtherTenant
	default:
		return nil
	}
}

func tenantName(id string) string {
	if id == "" {
		return "the platform"
	}
	return "tenant " + id
}

func auditKeysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Args: noArgs,
		Short: "List the public keys that checkpoints were signed with, and the newest checkpoint",
		Long: `List every public key that the gateway ever signed checkpoints with, and the
newest checkpoint of the API key's tenant. Put both aside where the gateway's
operator cannot change them: gateway audit verify needs a key, and a checkpoint
shows whether the end of a log was cut off.`,
	}
	deployed := deploymentFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := deployed()
		if err != nil {
			return err
		}
		return listKeys(cmd.Context(), d, cmd.OutOrStdout())
	}
	return cmd
}

func listKeys(ctx context.Context, d *deployment, out io.Writer) error {
	raw, err := d.call(ctx, http.MethodGet, "/v1/audit/checkpoints?limit=1", nil)
	if err != nil {
		return err
	}
	var page struct {
		Keys []struct {
			KeyID     string    `json:"key_id"`
			PublicKey string    `json:"public_key"`
			Since     time.Time `json:"since"`
		} `json:"keys"`
		Data []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(raw, &page); err != nil {
		return errors.New("the gateway's answer is not a list of checkpoints")
	}
	var b strings.Builder
	for _, k := range page.Keys {
		fmt.Fprintf(&b, "key %s since %s: %s\n", k.KeyID, k.Since.UTC().Format(time.RFC3339), k.PublicKey)
	}
	for _, c := range page.Data {
		fmt.Fprintf(&b, "newest checkpoint: %s\n", c)
	}
	if b.Len() == 0 {
		b.WriteString("nothing was sealed yet\n")
	}
	_, err = io.WriteString(out, b.String())
	return err
}
