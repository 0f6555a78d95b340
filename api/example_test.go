package api_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pinfold/pinfold/api"
)

// daemon starts a daemon of this repository for an example. It returns its socket, an
// empty project, and what ends it.
func daemon() (socket, project string, end func()) {
	dir, err := os.MkdirTemp("", "pinfold-example-")
	if err != nil {
		log.Fatal(err)
	}
	program := filepath.Join(os.Getenv("PINFOLD_BIN"), "pinfoldd")
	if os.Getenv("PINFOLD_BIN") == "" {
		program = filepath.Join(dir, "pinfoldd")
		if out, err := exec.Command("go", "build", "-o", program, "../cmd/pinfoldd").CombinedOutput(); err != nil {
			log.Fatalf("%v\n%s", err, out)
		}
	}
	socket, project = filepath.Join(dir, "run/agent.sock"), filepath.Join(dir, "project")
	args := []string{"--socket", socket, "--state", filepath.Join(dir, "state")}
	if os.Geteuid() != 0 {
		args = append(args, "--user")
	}
	process := exec.Command(program, args...)
	if err := errors.Join(os.Mkdir(project, 0o755), process.Start()); err != nil {
		log.Fatal(err)
	}
	for range 2000 {
		if _, err = api.NewClient(socket).Health(context.Background()); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		log.Fatal(err)
	}
	return socket, project, func() {
		_ = process.Process.Signal(os.Interrupt)
		_ = process.Wait()
		_ = os.RemoveAll(dir)
	}
}

// A command that is allowed runs, and says how it ended; one that is denied says why.
func ExampleClient_Exec() {
	socket, project, end := daemon()
	defer end()
	client := api.NewClient(socket)
	defer client.Close()
	ctx := context.Background()

	result, err := client.Exec(ctx, api.ExecRequest{Project: project, Command: "seq 3 | sort -r; exit 4"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q, status %d\n", result.Stdout, *result.ExitCode)

	_, err = client.Exec(ctx, api.ExecRequest{Project: project, Command: "ls && curl http://localhost"})
	if refused, ok := errors.AsType[*api.Error](err); ok {
		fmt.Println(refused.Code, "at column", refused.At.Column)
	}
	// Output:
	// "3\n2\n1\n", status 4
	// PERMISSION_DENIED at column 7
}

// Events come while the command runs.
func ExampleClient_Stream() {
	socket, project, end := daemon()
	defer end()
	client := api.NewClient(socket)
	defer client.Close()

	req := api.ExecRequest{Project: project, Command: "echo out"}
	err := client.Stream(context.Background(), req, func(e *api.Event) error {
		switch e.Event {
		case api.EventStdout:
			fmt.Printf("%s: %q\n", e.Event, e.Data)
		case api.EventFinished:
			fmt.Printf("%s: status %d\n", e.Event, *e.ExitCode)
		default:
			fmt.Println(e.Event)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// decided
	// started
	// stdout: "out\n"
	// finished: status 0
}

// A decision can be asked for without running anything.
func ExampleClient_Check() {
	socket, project, end := daemon()
	defer end()
	client := api.NewClient(socket)
	defer client.Close()

	for _, command := range []string{"git status", "rm notes.txt", "sudo ls"} {
		answer, err := client.Check(context.Background(), api.CheckRequest{Project: project, Command: command})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(command, "-", answer.Decision.Verdict)
	}
	// Output:
	// git status - allow
	// rm notes.txt - require_approval
	// sudo ls - deny
}
