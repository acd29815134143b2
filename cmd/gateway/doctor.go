package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"holdfast.dev/gateway/internal/doctor"
)

// doctorCommand looks at a deployment through its public URL.
func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Args: noArgs,
		Short: "Check a deployment through its public URL: load balancer, replicas, store, clocks",
		Long: `Make requests through a deployment's public address, each on a connection of its
own, and say what is not as it has to be and what to do about it: whether
repeats get the first answer whichever replica has them, whether anything in
between repeats or changes what passes, whether the admin listener is exposed,
whether clocks agree.

Writes go to a sandbox vendor that this command shows on --sandbox-listen, over
connections that it makes and deletes, or over one that is named. What was
written stays in the tenant's list of actions and audit.

Exit code 0: no problem, 1: at least one, 2: wrong usage.`,
	}
	at := deploymentFlags(cmd)
	flags := cmd.Flags()
	o := doctor.Options{}
	flags.StringArrayVar(&o.AdminURLs, "admin-url", nil, "admin listener of a replica, reached directly; once for each replica")
	flags.StringVar(&o.Connection, "connection", "", "an existing connection of sandbox@1, for a key without the scope manage")
	flags.StringVar(&o.SandboxListen, "sandbox-listen", "127.0.0.1:0", "address of this machine at which replicas reach the sandbox vendor")
	flags.IntVar(&o.Tries, "tries", 8, "requests of each kind, 2 to 100; more than there are replicas")
	flags.DurationVar(&o.Slow, "slow", 3*time.Second, "how long the slow write takes, at most 9s")
	asJSON := flags.Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := at()
		if err != nil {
			return err
		}
		o.URL, o.Key = d.base, d.key
		if err := checkDoctor(&o); err != nil {
			return usageError{err}
		}
		report, err := doctor.Examine(cmd.Context(), o)
		if err != nil {
			return fmt.Errorf("examine deployment: %w", err)
		}
		if *asJSON {
			err = printJSON(cmd.OutOrStdout(), report)
		} else {
			err = printReport(cmd.OutOrStdout(), report)
		}
		if err == nil && !report.Healthy {
			err = errors.New("the deployment has problems")
		}
		return err
	}
	return cmd
}

func checkDoctor(o *doctor.Options) error {
	for i, admin := range o.AdminURLs {
		u, err := url.Parse(admin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return errors.New("--admin-url must be an http or https address")
		}
		o.AdminURLs[i] = strings.TrimRight(admin, "/")
	}
	if o.Tries < 2 || o.Tries > 100 {
		return errors.New("--tries must be 2 to 100")
	}
	if o.Slow < 0 || o.Slow > 9*time.Second {
		return errors.New("--slow must be 0s to 9s")
	}
	c := Config{}
	if err := address(func(c *Config) *string { return &c.Listen })(&c, o.SandboxListen); err != nil {
		return fmt.Errorf("--sandbox-listen: %w", err)
	}
	return nil
}

func printReport(w io.Writer, r *doctor.Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "RESULT\tCHECK\tFOUND") // Flush has the error
	problems, warnings := 0, 0
	for _, f := range r.Findings {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", f.Level, f.Check, f.Found)
		if f.Do != "" {
			_, _ = fmt.Fprintf(t, "\t\t→ %s\n", f.Do)
		}
		switch f.Level {
		case doctor.Problem:
			problems++
		case doctor.Warning:
			warnings++
		default:
		}
	}
	_, _ = fmt.Fprintf(t, "\n%d problems, %d warnings\n", problems, warnings)
	return t.Flush()
}
