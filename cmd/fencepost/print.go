package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
)

// printJSON prints one object on a line of its own.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printTable prints rows without decoration, in columns two spaces apart.
func (a *app) printTable(header table.Row, rows []table.Row) error {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	if header != nil {
		t.AppendHeader(header)
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(fmt.Sprint(cell))
		}
		t.AppendRow(row)
	}
	_, err := fmt.Fprintln(a.out, t.Render())
	return err
}

// printable escapes what could move the cursor or colour the screen: names,
// payloads and errors are whatever somebody has put into the queue.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// timestamp formats for people; the zero time is a dash.
func timestamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
