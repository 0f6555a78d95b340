// Has Pinfold judge every shell command, and run it confined. Made by
// "pinfold setup pi"; "pinfold setup --undo --write pi" removes it.
import { spawnSync } from "node:child_process";

export default function (pi: any) {
  pi.on("tool_call", async (event: any, ctx: any) => {
    if (event.toolName !== "bash") return;
    const call = JSON.stringify({ tool: "bash", cwd: ctx?.cwd ?? process.cwd(), args: event.input });
    const hook = spawnSync("/bin/sh", ["-c", "pinfold hook pi"], { input: call, encoding: "utf8", timeout: 30000 });
    let answer: any = {};
    try {
      answer = JSON.parse(hook.stdout);
    } catch {}
    if (hook.status !== 0 || !answer.args) {
      return { block: true, reason: answer.deny ?? "pinfold: the hook gave no answer; nothing was run" };
    }
    event.input.command = answer.args.command;
  });
}
