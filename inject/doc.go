// Package inject puts the fence into pods: it rewrites a Deployment, StatefulSet or Pod so that routefence is its first init container,
// and no other container runs before the fence stands.
//
// It works on the generic tree that decoded JSON is, so that fields which this program does not know survive. It is pure: what it
// returns depends on its arguments alone, byte for byte, as gardenlet sends its objects without the sidecar at every reconcile
// and any difference would roll every control plane.
package inject
