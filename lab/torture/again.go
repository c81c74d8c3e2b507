package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"
)

// again is the command that does the same again, into the same folder.
func (f *flags) again(cmd *cobra.Command, rate float64) string {
	words := []string{"cd lab && go run ./torture"}
	if cmd.HasParent() {
		words = append(words, cmd.Name())
	}
	for _, name := range []string{"fault", "minutes", "workers", "lease", "poll", "break", "major"} {
		if flag := cmd.Flag(name); flag != nil && flag.Changed {
			words = append(words, "--"+name+" "+strings.Trim(flag.Value.String(), "[]"))
		}
	}
	guard := cmd.Flag("break")
	if guard != nil && !guard.Changed { // a control has a rate of its own, and a suite too
		words = append(words, fmt.Sprintf("--rate %g", math.Round(rate*10)/10)) // measured, unless it was given
	}
	if f.named {
		words = append(words, "--out "+quoted(f.out))
	}
	return strings.Join(append(words, fmt.Sprintf("--seed %d", f.seed)), " ")
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
