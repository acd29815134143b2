package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// heldCommand looks after the held writes of a deployment.
func heldCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "held", Short: "List, check and resolve the held writes of a deployment",
		Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	h := &heldCommands{}
	cmd.PersistentFlags().BoolVar(&h.json, "json", false, "print the gateway's JSON")
	h.at = deploymentFlags(cmd)
	cmd.AddCommand(h.list(), h.show(), h.check(), h.resolve())
	return cmd
}

type heldCommands struct {
	at   func() (*deployment, error)
	json bool
}

// heldAction is what the tables show of an action.
type heldAction struct {
	ID         string    `json:"id"`
	State      string    `json:"state"`
	Unreadable bool      `json:"unreadable"`
	Connection string    `json:"connection"`
	Action     string    `json:"action"`
	CreatedAt  time.Time `json:"created_at"`
	HoldUntil  time.Time `json:"hold_until"`
	Deadline   time.Time `json:"deadline"`
	Evidence   string    `json:"evidence"`
	Warning    string    `json:"warning"`
	Outcome    struct {
		Phase  string `json:"phase"`
		Reason string `json:"reason"`
	} `json:"outcome"`
	Check *struct {
		Automatic bool   `json:"automatic"`
		How       string `json:"how"`
		Detail    string `json:"detail"`
		Request   struct {
			Method string `json:"method"`
			URL    string `json:"url"`
		} `json:"request"`
		Match string `json:"match"`
	} `json:"check"`
	History []struct {
		At     time.Time `json:"at"`
		Event  string    `json:"event"`
		By     string    `json:"by"`
		Detail string    `json:"detail"`
	} `json:"history"`
}

func (h *heldCommands) list() *cobra.Command {
	connection := ""
	cmd := &cobra.Command{Use: "list", Short: "List held writes, newest first", Args: noArgs}
	cmd.Flags().StringVar(&connection, "connection", "", "only of this connection")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := h.at()
		if err != nil {
			return err
		}
		query := url.Values{"state": {"held"}, "limit": {"200"}}
		if connection != "" {
			query.Set("connection", connection)
		}
		all := []json.RawMessage{}
		for {
			raw, err := d.call(cmd.Context(), "GET", "/v1/actions?"+query.Encode(), nil)
			if err != nil {
				return err
			}
			var page struct {
				Data []json.RawMessage `json:"data"`
				Next string            `json:"next_cursor"`
			}
			if err := json.Unmarshal(raw, &page); err != nil {
				return errors.New("the answer is not what a gateway answers")
			}
			all = append(all, page.Data...)
			if page.Next == "" {
				break
			}
			query.Set("cursor", page.Next)
		}
		if h.json {
			return printJSON(cmd.OutOrStdout(), all)
		}
		return heldTable(cmd.OutOrStdout(), all, time.Now())
	}
	return cmd
}

func heldTable(w io.Writer, rows []json.RawMessage, now time.Time) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "nothing is held")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "ID\tCONNECTION\tACTION\tAGE\tLAPSES IN\tWHY\tCHECK\tBY ITSELF")
	for _, raw := range rows {
		var a heldAction
		if err := json.Unmarshal(raw, &a); err != nil {
			return errors.New("the answer is not what a gateway answers")
		}
		if a.Unreadable {
			_, _ = fmt.Fprintf(t, "%s\t?\t?\t%s\t?\tunreadable\tmanual\tno\n", a.ID, age(now.Sub(a.CreatedAt)))
			continue
		}
		how, itself := "manual", "no"
		if a.Check != nil {
			how = a.Check.How
			if a.Check.Automatic {
				itself = "yes"
			}
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.ID, a.Connection, a.Action,
			age(now.Sub(a.CreatedAt)), age(a.HoldUntil.Sub(now)), firstOf(a.Outcome.Reason, a.Outcome.Phase), how, itself)
	}
	return t.Flush()
}

// age is a duration a person can take in.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}

func (h *heldCommands) show() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show how a write stands and how to find out about it", Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.one(cmd, "GET", "/v1/actions/"+url.PathEscape(args[0]), nil)
		},
	}
}

// one makes a call that answers with an action, and prints it.
func (h *heldCommands) one(cmd *cobra.Command, method, path string, body any) error {
	d, err := h.at()
	if err != nil {
		return err
	}
	raw, err := d.call(cmd.Context(), method, path, body)
	if err != nil {
		return err
	}
	if h.json {
		return printJSON(cmd.OutOrStdout(), json.RawMessage(raw))
	}
	return printAction(cmd.OutOrStdout(), raw)
}

func (h *heldCommands) check() *cobra.Command {
	return &cobra.Command{
		Use: "check ID", Short: "Let the gateway find out about a held write at the vendor, now", Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := h.at()
			if err != nil {
				return err
			}
			raw, err := d.call(cmd.Context(), "POST", "/v1/actions/"+url.PathEscape(args[0])+"/check", nil)
			if err != nil {
				return err
			}
			if h.json {
				return printJSON(cmd.OutOrStdout(), json.RawMessage(raw))
			}
			var result struct{ Verdict, Detail string }
			if err := json.Unmarshal(raw, &result); err != nil {
				return errors.New("the answer is not what a gateway answers")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", result.Verdict, result.Detail)
			return err
		},
	}
}

func (h *heldCommands) resolve() *cobra.Command {
	var outcome, result, note string
	cmd := &cobra.Command{
		Use: "resolve ID --outcome succeeded|not_performed --note TEXT", Args: oneID,
		Short: "Settle a held write by your word: look at the vendor first",
	}
	cmd.Flags().StringVar(&outcome, "outcome", "", "succeeded, or not_performed")
	cmd.Flags().StringVar(&result, "result", "", "with succeeded: JSON that repeats are to get")
	cmd.Flags().StringVar(&note, "note", "", "what was found, for the history")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body := map[string]any{"outcome": outcome, "note": note}
		switch {
		case outcome != "succeeded" && outcome != "not_performed":
			return usageError{errors.New("--outcome must be succeeded or not_performed")}
		case note == "":
			return usageError{errors.New("--note is required: say what you found, the next person will ask")}
		case result != "" && outcome != "succeeded":
			return usageError{errors.New("--result goes with --outcome succeeded")}
		case result != "" && !json.Valid([]byte(result)):
			return usageError{errors.New("--result must be JSON")}
		case result != "":
			body["result"] = json.RawMessage(result)
		}
		return h.one(cmd, "POST", "/v1/actions/"+url.PathEscape(args[0])+"/resolve", body)
	}
	return cmd
}

func oneID(_ *cobra.Command, args []string) error {
	if len(args) != 1 || !strings.HasPrefix(args[0], "act_") {
		return usageError{errors.New("give the id of one action, act_…")}
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("print answer: %w", err)
	}
	return nil
}

func printAction(w io.Writer, raw []byte) error {
	var a heldAction
	if err := json.Unmarshal(raw, &a); err != nil {
		return errors.New("the answer is not what a gateway answers")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(t, "%s\t%s\n", name, value)
		}
	}
	line("id", a.ID)
	line("state", a.State)
	line("write", a.Connection+" "+a.Action)
	line("claimed", a.CreatedAt.Format(time.RFC3339))
	line("outcome", strings.TrimSpace(a.Outcome.Phase+" "+a.Outcome.Reason))
	line("evidence", a.Evidence)
	if !a.HoldUntil.IsZero() {
		line("held until", a.HoldUntil.Format(time.RFC3339))
		line("deadline", a.Deadline.Format(time.RFC3339))
	}
	if a.Check != nil {
		line("check", a.Check.Detail)
		line("request", strings.TrimSpace(a.Check.Request.Method+" "+a.Check.Request.URL))
		line("match", a.Check.Match)
	}
	for _, c := range a.History {
		line(c.At.Format(time.RFC3339), strings.TrimSpace(c.Event+" "+c.Detail))
	}
	line("warning", a.Warning)
	return t.Flush()
}
