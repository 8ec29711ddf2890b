"""Whether this machine is fit for measuring: each check says what it found, what that means, and what to do about
it."""
