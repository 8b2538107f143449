/** What `ng new` switches on besides `strict`, as in a tsconfig.json: code that is copied into a project must compile there. */
export const ANGULAR_SWITCHES = {
  noFallthroughCasesInSwitch: true,
  noImplicitOverride: true,
  noImplicitReturns: true,
  noPropertyAccessFromIndexSignature: true,
}
