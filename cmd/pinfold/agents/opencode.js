// Has Pinfold judge every shell command, and run it confined. Made by
// "pinfold setup opencode"; "pinfold setup --undo --write opencode" removes it.
import { spawnSync } from "node:child_process"

export const Pinfold = async ({ directory }) => ({
  "tool.execute.before": async (input, output) => {
    if (input.tool !== "bash") return
    const call = JSON.stringify({ tool: "bash", cwd: directory, args: output.args })
    const hook = spawnSync("/bin/sh", ["-c", "pinfold hook opencode"], { input: call, encoding: "utf8", timeout: 30000 })
    let answer = {}
    try {
      answer = JSON.parse(hook.stdout)
    } catch {}
    if (hook.status !== 0 || !answer.args) {
      throw new Error(answer.deny ?? "pinfold: the hook gave no answer; nothing was run")
    }
    output.args.command = answer.args.command
  },
})
