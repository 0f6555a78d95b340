package confine

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha1"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/confine/door"
)

func tarball(t *testing.T, name, content string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	w.Write([]byte(content))
	w.Close()
	z.Close()
	return b.Bytes()
}

func archive(t *testing.T, files ...string) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		f, err := w.Create(files[i])
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte(files[i+1]))
	}
	w.Close()
	return b.Bytes()
}

// registry answers as those of npm, pip and Go do, with one package each.
func registry(t *testing.T) http.Handler {
	npm := tarball(t, "package/package.json", `{"name":"left","version":"1.0.0"}`)
	const mod = "module left.example/m\n\ngo 1.20\n"
	wheel := archive(t, "leftpy.py", "side = 'left'\n",
		"leftpy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: leftpy\nVersion: 1.0\n",
		"leftpy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"leftpy-1.0.dist-info/RECORD", "leftpy.py,,\nleftpy-1.0.dist-info/METADATA,,\nleftpy-1.0.dist-info/WHEEL,,\nleftpy-1.0.dist-info/RECORD,,\n")
	pages := map[string]string{
		"npm.example/left":                         fmt.Sprintf(`{"name":"left","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"left","version":"1.0.0","dist":{"shasum":"%x","tarball":"http://npm.example/left.tgz"}}}}`, sha1.Sum(npm)),
		"npm.example/left.tgz":                     string(npm),
		"pip.example/simple/leftpy/":               `<a href="http://pip.example/leftpy-1.0-py3-none-any.whl">leftpy-1.0-py3-none-any.whl</a>`,
		"pip.example/leftpy-1.0-py3-none-any.whl":  string(wheel),
		"go.example/left.example/m/@v/v1.0.0.info": `{"Version":"v1.0.0"}`,
		"go.example/left.example/m/@v/v1.0.0.mod":  mod,
		"go.example/left.example/m/@v/v1.0.0.zip":  string(archive(t, "left.example/m@v1.0.0/go.mod", mod, "left.example/m@v1.0.0/m.go", "package m\n")),
		"go.example/left.example/m/@v/list":        "v1.0.0\n",
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, ok := pages[r.Host+r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/") {
			w.Header().Set("Content-Type", "text/html")
		}
		w.Write([]byte(page))
	})
}

// TestPackageManagers: each installs from the registry that the grant names, and
// not from one that it does not.
func TestPackageManagers(t *testing.T) {
	eachLong(t, func(t *testing.T, b box) {
		online(t, b.m, registry(t))
		for _, row := range []struct{ program, host, text, variable string }{
			{"npm", "npm.example", "mkdir n && cd n && npm install --no-audit --no-fund --fetch-retries=0 left && cat node_modules/left/package.json", "npm_config_registry=http://npm.example/"},
			{"python3", "pip.example", "python3 -c 'import pip' 2>/dev/null || { echo left; exit; }; python3 -m pip install -q --retries 0 --trusted-host pip.example --target lib leftpy && PYTHONPATH=lib python3 -c 'import leftpy; print(leftpy.side)'", "PIP_INDEX_URL=http://pip.example/simple"},
			{"go", "go.example", "mkdir g && cd g && printf 'module x\\ngo 1.20\\nrequire left.example/m v1.0.0\\n' > go.mod && GOSUMDB=off GOMODCACHE=$PWD/mod go mod download -x left.example/m && ls mod/left.example", "GOPROXY=" + "http://go.example"},
		} {
			t.Run(row.program, func(t *testing.T) {
				needs(t, row.program)
				r, out, errs := b.request(toHosts(widest, row.host), row.text)
				r.Env = []string{row.variable}
				o, err := b.m.Run(context.Background(), r)
				if err != nil || o.ExitCode != 0 || !strings.Contains(out.String(), "left") && !strings.Contains(out.String(), "m@v1.0.0") {
					t.Errorf("%v %+v: %s %s", err, o, out, errs)
				}
				for _, n := range o.Network {
					if n.Verdict != door.Allowed || n.Name != row.host {
						t.Errorf("network %+v", n)
					}
				}
				b.run(t, widest, "chmod -R u+w n lib g 2>/dev/null; rm -rf n lib g")
				r, out, errs = b.request(toHosts(widest, "other.example"), row.text)
				r.Env = []string{row.variable}
				if o, err = b.m.Run(context.Background(), r); err != nil || len(o.Network) > 0 && o.ExitCode == 0 {
					t.Errorf("another list: %v %+v: %s %s", err, o, out, errs)
				}
				for _, n := range o.Network {
					if n.Verdict != door.Refused || n.Name != row.host {
						t.Errorf("another list: network %+v", n)
					}
				}
			})
		}
	})
}
