package confine

// Caller is the user that commands run as.
type Caller struct {
	UID, GID   uint32
	Groups     []uint32
	Name, Home string
}
