package main

import "github.com/spf13/cobra"

// completionCommand is cobra's, with an error where it would succeed without
// the name of a shell. It must come after the other commands.
func (a *app) completionCommand(root *cobra.Command) *cobra.Command {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.InitDefaultCompletionCmd()
	cmd, _, _ := root.Find([]string{"completion"})
	root.RemoveCommand(cmd)
	cmd.Short = "Print a script that completes commands and flags in a shell"
	cmd.Long = `Print a script that lets a shell complete commands and flags. The help of each shell's command says how to load it.`
	cmd.Example = `  source <(fencepost completion bash)`
	return parent(cmd)
}
