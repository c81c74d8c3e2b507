package main

import (
	"bufio"
	"cmp"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
)

// app is one run of the command.
type app struct {
	env    []string
	stdin  io.Reader
	stdout io.Writer     // for the processes of jobs
	out    *bufio.Writer // for everything we print; Run flushes it
	stderr io.Writer

	databaseURL string
	schema      string
	json        bool

	// began is set once cobra has accepted the arguments.
	began bool
}

const rootHelp = `Fencepost is a job queue in PostgreSQL.

The database is named by --database-url or DATABASE_URL, as a URL
(postgres://user:password@host/database) or as keywords (host=... dbname=...).
What it leaves out is taken from PGHOST, PGUSER, PGPASSWORD and the like.

Results go to standard output, errors and logs to standard error. With --json
results are JSON, one object a line; ids in them are strings, since many
readers of JSON keep only 53 bits of a number.

Exit codes:
  0  done
  1  failed
  2  wrong usage: a flag, an argument or the input; nothing was changed
  3  the database cannot be reached, or refused the login
  4  the tables are missing or do not fit this program: see fencepost migrate
  5  there is no such job, or queue`

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "fencepost",
		Short:         "A job queue in PostgreSQL",
		Long:          rootHelp,
		SilenceErrors: true, // Run prints them
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			a.began = true
			a.databaseURL = cmp.Or(a.databaseURL, a.getenv("DATABASE_URL"))
			a.schema = cmp.Or(a.schema, a.getenv("FENCEPOST_SCHEMA"), fencepost.DefaultSchema)
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.out)
	root.SetErr(a.stderr)
	// The defaults come from the environment later: here, the help would print
	// them, password and all.
	flags := root.PersistentFlags()
	flags.StringVar(&a.databaseURL, "database-url", "", "the database (default $DATABASE_URL)")
	flags.StringVar(&a.schema, "schema", "", "the schema of the queue's tables (default $FENCEPOST_SCHEMA, then fencepost)")
	flags.BoolVar(&a.json, "json", false, "print JSON, one object a line")
	section(root, "Jobs",
		a.enqueueCommand(),
		a.workCommand(),
		a.listCommand(),
		a.showCommand(),
	)
	section(root, "Operate",
		a.retryCommand(),
		a.cancelCommand(),
		a.deleteCommand(),
		a.releaseCommand(),
		a.queueCommand(),
		a.workerCommand(),
	)
	section(root, "Database",
		a.migrateCommand(),
		a.doctorCommand(),
		a.benchCommand(),
	)
	section(root, "More",
		a.demoCommand(),
		a.versionCommand(),
		a.completionCommand(root),
		helpCommand(root),
	)
	return root
}

// section adds commands under a title in the help.
func section(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, cmd := range commands {
		cmd.GroupID = title
	}
	root.AddCommand(commands...)
}

// helpCommand replaces cobra's, which succeeds for a command that is not
// there.
func helpCommand(root *cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print the help of a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return usage("%w", err)
			}
			if len(rest) > 0 {
				return usage("unknown command %q for %q", rest[0], cmd.CommandPath())
			}
			return cmd.Help()
		},
	}
	root.SetHelpCommand(cmd)
	return cmd
}

// parent makes a command that only holds others. Without one of them it is an
// error, where cobra would print a help and succeed.
func parent(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(children...)
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(*cobra.Command, []string) error {
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		return usage("%s needs a command: %s", cmd.CommandPath(), strings.Join(names, ", "))
	}
	return cmd
}

// noArgs refuses arguments. To cobra's func of that name each is an unknown
// command.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, and got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// oneArg wants one argument and calls it by its name in the help.
func oneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("%s takes one %s, and got %d", cmd.CommandPath(), name, len(args))
		}
		return nil
	}
}

// getenv returns the value of a variable, empty if it is not set. As in a
// shell, of two with one name the later counts.
func (a *app) getenv(name string) (value string) {
	for _, entry := range a.env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}
