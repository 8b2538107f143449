// What your page defines for these recipes.
declare function showPage(session: object): void
declare function showNotice(text: string): void
declare function showSignInButton(error: string | null): void
declare function showFlux(text: string): void
