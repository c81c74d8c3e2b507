package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost/cmd/fencepost/internal/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	var listenURL string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at the queue and its server, and say what is wrong",
		Long: `Look at the queue and its server, and say what is wrong and what to do.

Each line is a check with its verdict:
  ok    nothing to do
  warn  it works, and somebody should look at it
  fail  jobs are held up, or may be
  skip  it cannot be told, because a right is missing or the server was too slow
and below it, after ->, the remedy.

It reads only, but for a notification that it sends to itself, and each of its
statements is ended after 5 seconds. A role that may read the tables is enough;
with pg_monitor it also sees the sessions of other roles.

Transactions that have been open for more than a minute are a warning, those
that also keep dead rows from being removed are a failure after 10 minutes. A
queue with due jobs and nobody to run them is a failure after a minute.

The exit code is 0 if nothing has failed, whatever the warnings; 1 if something
has; 3 if the database cannot be reached; 4 if the tables are missing or do not
fit this program. What could be seen is printed in every case.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := a.config()
			if err != nil {
				return err
			}
			patient := doctor.Patient{Conn: config.ConnConfig, Schema: a.schema}
			if patient.Listen, err = a.listenConfig(listenURL); err != nil {
				return err
			}
			failed := 0
			count := make(map[doctor.Verdict]int)
			var broken error // the output
			err = doctor.Examine(cmd.Context(), patient, func(f doctor.Finding) {
				count[f.Verdict]++
				if f.Verdict == doctor.Fail {
					failed++
				}
				broken = cmp.Or(broken, a.printFinding(f))
			})
			if broken != nil {
				return broken
			}
			if !a.json {
				fmt.Fprintf(a.out, "\n%d ok, %d warn, %d fail, %d skip\n", count[doctor.OK], count[doctor.Warn], count[doctor.Fail], count[doctor.Skip])
			}
			switch {
			case errors.Is(err, doctor.ErrUnreachable):
				return cannotConnect(err)
			case err == nil && failed > 0:
				return fmt.Errorf("failed checks: %d", failed)
			default:
				return err
			}
		},
	}
	cmd.Flags().StringVar(&listenURL, "listen-url", "", "the way on which workers listen, if it is another (default $FENCEPOST_LISTEN_URL)")
	return cmd
}

func (a *app) printFinding(f doctor.Finding) error {
	f.Message, f.Remedy = redact(f.Message), redact(f.Remedy)
	if a.json {
		return a.printFindingJSON(f)
	}
	_, err := fmt.Fprintf(a.out, "%-4s  %-13s  %s\n", f.Verdict, f.Check, printable(f.Message))
	if err == nil && f.Remedy != "" {
		_, err = fmt.Fprintf(a.out, "%21s-> %s\n", "", printable(f.Remedy))
	}
	if err == nil {
		err = a.out.Flush() // each line as it is found
	}
	return err
}

// printFindingJSON prints the figures of a finding beside its words, in one
// object.
func (a *app) printFindingJSON(f doctor.Finding) error {
	words, err := encode(struct {
		Check   string         `json:"check"`
		Verdict doctor.Verdict `json:"verdict"`
		Message string         `json:"message"`
		Remedy  string         `json:"remedy"`
	}{f.Check, f.Verdict, f.Message, f.Remedy})
	if err != nil {
		return err
	}
	if len(f.Figures) > 0 {
		figures, err := encode(f.Figures)
		if err != nil {
			return err
		}
		words = append(append(words[:len(words)-1], ','), figures[1:]...)
	}
	_, err = a.out.Write(append(words, '\n'))
	return err
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
