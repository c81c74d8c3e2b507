package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fencepost-go/fencepost/migrations"
)

type versionInfo struct {
	Version  string `json:"version"`  // of the module; (devel) from a working copy
	Revision string `json:"revision"` // of the version control system; empty if unknown
	Modified bool   `json:"modified"` // the working copy had changes
	Go       string `json:"go"`
	Schema   int    `json:"schema"` // the version that the tables are migrated to
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := currentVersion()
			if a.json {
				return a.printJSON(v)
			}
			fmt.Fprintf(a.out, "fencepost %s", v.Version)
			if v.Revision != "" {
				fmt.Fprintf(a.out, " (%.12s", v.Revision)
				if v.Modified {
					fmt.Fprint(a.out, ", modified")
				}
				fmt.Fprint(a.out, ")")
			}
			fmt.Fprintf(a.out, " %s, schema %d\n", v.Go, v.Schema)
			return nil
		},
	}
}

func currentVersion() versionInfo {
	v := versionInfo{Version: "(unknown)", Schema: migrations.Latest}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = build.GoVersion
	if build.Main.Version != "" {
		v.Version = build.Main.Version
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
