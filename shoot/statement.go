package shoot

// Statement is what was last believed of one object, with what tells it from any other of that name.
type Statement struct {
	// Ref says which object, such as "cluster/shoot--dev--one".
	Ref string
	// UID is the object's own. An object deleted and made anew has another one, and is another object.
	UID string
	// Version is the resourceVersion.
	Version string
	// Reading is what holds: what the object named, and what could not be believed to be gone.
	Reading Reading
}
