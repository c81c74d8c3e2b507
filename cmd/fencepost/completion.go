package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost"
)

// completionPatience bounds how long a press of the tab key waits for the
// database. Without an answer by then nothing is offered.
const completionPatience = time.Second

// completionCommand is cobra's, with an error where it would succeed without
// the name of a shell. It must come after the other commands.
func (a *app) completionCommand(root *cobra.Command) *cobra.Command {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.InitDefaultCompletionCmd()
	cmd, _, _ := root.Find([]string{"completion"})
	root.RemoveCommand(cmd)
	cmd.Short = "Print a script that completes commands, queues and kinds in a shell"
	cmd.Long = `Print a script that lets a shell complete commands and flags, and from the
database that DATABASE_URL names, if it answers within a second, the names of
queues and kinds. The help of each shell's command says how to load it.`
	cmd.Example = `  source <(fencepost completion bash)`
	return parent(cmd)
}

// completeFilter completes the flags of a filter.
func (a *app) completeFilter(cmd *cobra.Command, statuses []string) {
	a.completeFlag(cmd, "queue", a.queueNames)
	a.completeFlag(cmd, "kind", a.kinds)
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp))
}

// lookup finds words in the database.
type lookup = func(context.Context, *fencepost.Client) ([]string, error)

// completeFlag completes a flag of cmd, which must be there.
func (a *app) completeFlag(cmd *cobra.Command, name string, find lookup) {
	_ = cmd.RegisterFlagCompletionFunc(name, a.complete(find))
}

// completeArg completes the one argument of cmd.
func (a *app) completeArg(cmd *cobra.Command, find lookup) {
	fromDatabase := a.complete(find)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return fromDatabase(cmd, args, typed)
	}
}

// complete offers what find finds. That it fails is nothing to tell somebody
// in the middle of typing: nothing is offered then.
func (a *app) complete(find lookup) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		var found []string
		_ = a.withClient(ctx, func(client *fencepost.Client, _ *pgxpool.Pool) (err error) {
			found, err = find(ctx, client)
			return err
		})
		found = slices.DeleteFunc(found, func(word string) bool {
			return !harmless(word) || !strings.HasPrefix(word, typed)
		})
		slices.Sort(found)
		return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
	}
}

// harmless reports a name that means nothing to any shell. Others are not
// offered: they are whatever somebody has put into the queue.
func harmless(name string) bool {
	return !strings.HasPrefix(name, "-") && strings.IndexFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.:/+=@", r)
	}) < 0
}

func (a *app) queueNames(ctx context.Context, client *fencepost.Client) ([]string, error) {
	queues, err := client.Queues(ctx)
	var names []string
	for _, q := range queues {
		names = append(names, q.Name)
	}
	return names, err
}

// kinds finds those of the newest jobs, which costs little however many there
// are, and those that workers have asked for.
func (a *app) kinds(ctx context.Context, client *fencepost.Client) ([]string, error) {
	var kinds []string
	jobs, err := client.List(ctx, fencepost.Filter{Limit: 200})
	for _, j := range jobs {
		kinds = append(kinds, j.Kind)
	}
	workers, workersErr := client.Workers(ctx)
	for _, w := range workers {
		kinds = append(kinds, w.Kinds...)
	}
	return kinds, errors.Join(err, workersErr)
}
