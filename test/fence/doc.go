// Package fence proves the fence as it is shipped: its tests build routefence, run it in the standard bench, and believe
// only what arrives at the far ends and what the kernel shows. It holds no code but tests.
package fence
