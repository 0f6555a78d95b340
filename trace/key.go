package trace

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A Head says which record is the last one, with the daemon's signature: what
// was cut off the end is missed, and no chain can be made anew without the key.
type Head struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`
	// Sign is the Ed25519 signature, in base64, over "pinfold trace head", the
	// number and the hash, each followed by a line's end.
	Sign string `json:"sign"`
}

func (h Head) message() []byte {
	return []byte("pinfold trace head\n" + strconv.FormatUint(h.Seq, 10) + "\n" + h.Hash + "\n")
}

func signHead(key ed25519.PrivateKey, seq uint64, hash string) Head {
	h := Head{Seq: seq, Hash: hash}
	h.Sign = base64.StdEncoding.EncodeToString(ed25519.Sign(key, h.message()))
	return h
}

// good reports whether the head was signed with the key.
func (h Head) good(key ed25519.PublicKey) bool {
	sign, err := base64.StdEncoding.DecodeString(h.Sign)
	return err == nil && ed25519.Verify(key, h.message(), sign)
}

// The files beside a trace t.ndjson.
func stem(path string) string     { return strings.TrimSuffix(path, ".ndjson") }
func keyFile(path string) string  { return stem(path) + ".key" }
func headFile(path string) string { return stem(path) + ".head" }

// PublicKeyFile returns where the public key of the trace lies: 32 bytes in
// base64. Keep a copy elsewhere: whoever can write here can put another key in
// its place.
func PublicKeyFile(path string) string { return stem(path) + ".pub" }

// loadKey reads the daemon's key, or makes it.
func loadKey(path string) (ed25519.PrivateKey, error) {
	seed, err := os.ReadFile(keyFile(path))
	if errors.Is(err, os.ErrNotExist) {
		seed = make([]byte, ed25519.SeedSize)
		_, _ = rand.Read(seed) // never fails
		err = replaceFile(keyFile(path), seed, 0o600)
	}
	if err != nil {
		return nil, err
	}
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("%s: is no key", keyFile(path))
	}
	key := ed25519.NewKeyFromSeed(seed)
	public := base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)) + "\n"
	if old, err := os.ReadFile(PublicKeyFile(path)); err == nil && string(old) == public {
		return key, nil
	}
	return key, replaceFile(PublicKeyFile(path), []byte(public), 0o644)
}

// ReadPublicKey reads a public key that a daemon wrote.
func ReadPublicKey(file string) (ed25519.PublicKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%s: is no public key", file)
	}
	return key, nil
}

// readHead returns the head that was signed last, nil when there is none.
func readHead(path string) (*Head, error) {
	text, err := os.ReadFile(headFile(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var h Head
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("%s: is no head", headFile(path))
	}
	return &h, nil
}

// replaceFile writes a file whole or not at all, and to the disk.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// retryTime is how long a segment goes on that could not be ended.
const retryTime = time.Minute
