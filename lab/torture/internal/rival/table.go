package rival

import (
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// footnotes say what a reader has to know to be fair to both.
var footnotes = []string{
	"Seconds are counted from the moment when nobody worked on a job (its process was killed or stopped, its handler returned, " +
		"the server was back) until it started again or its outcome was stored.",
	"River: stuck jobs are looked for by one process, the leader, every 30 s and when it is elected; a rescued job then waits for the " +
		"pause of a failed attempt (1 s) and for the leader's look at retries, every 5 s. There is no public option for these intervals. " +
		"The notes say how long after an election each fault came; over all such times the mean would be 15 s for the one look, " +
		"after the rescue is due, and 3 to 4 s for the other.",
	"River: a leader that is killed is replaced when its term is over (15 s, renewed every 5 s) and another bids (every 5 to 6 s). " +
		"The new one looks for stuck jobs at once.",
	"River: a rescue shorter than the jobs would pass its validation and run healthy jobs twice; its documentation advises against it.",
	"River stores an outcome if the job is running, by whoever: a late one is accepted while another attempt runs, and dropped otherwise. " +
		"It stores them in batches, so an outcome can be late although its handler was not.",
	"Doubled counts a handler in a frozen process as running: under SIGSTOP no queue can help it.",
}

// Print writes the rows as a table, with the settings and notes below it.
func Print(w io.Writer, rows []Row) {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"scenario", "queue", "jobs held", "went on", "median s", "max s", "stale accepted", "lost", "doubled"})
	var numbers []table.ColumnConfig
	for n := 3; n <= 9; n++ {
		numbers = append(numbers, table.ColumnConfig{Number: n, Align: text.AlignRight})
	}
	t.SetColumnConfigs(numbers)
	byScenario := slices.Clone(rows)
	slices.SortStableFunc(byScenario, func(a, b Row) int { return first(rows, a) - first(rows, b) })
	for i, r := range byScenario {
		if i > 0 && byScenario[i-1].Scenario != r.Scenario {
			t.AppendSeparator()
		}
		t.AppendRow(table.Row{
			r.Scenario, r.Queue, r.Held, r.Recovered, fmt.Sprintf("%.1f", r.MedianSeconds), fmt.Sprintf("%.1f", r.MaxSeconds),
			r.StaleAccepted, r.Lost, r.Doubled,
		})
	}
	fmt.Fprintln(w, t.Render())
	told := map[string]bool{}
	for _, r := range byScenario {
		if !told[r.Queue] {
			told[r.Queue] = true
			fmt.Fprintf(w, "%s %s: %s.\n", r.Queue, r.Version, r.Settings)
		}
	}
	for _, note := range footnotes {
		fmt.Fprintln(w, note)
	}
	for _, r := range byScenario {
		for _, note := range r.Notes {
			fmt.Fprintf(w, "%s, %s: %s.\n", r.Scenario, r.Queue, note)
		}
	}
}

// first is the place of a row's scenario.
func first(rows []Row, of Row) int {
	return slices.IndexFunc(rows, func(r Row) bool { return r.Scenario == of.Scenario })
}
